// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/koord-rt/koord-rt/test/lab/kubelet"
	"github.com/koord-rt/koord-rt/test/scenario"
)

// Conformance: pods that were created while nobody was there, and are repaired after Synchronize, end in the state that
// the same pods get at creation. Both are compared with the scenario's wanted lines, straight from the kernel; what only
// a creation can set (environment, devices) is left out.

func TestHostConformance(t *testing.T) { repairScenarios(t, rigOptions{}) }

func TestGuestConformance(t *testing.T) { repairScenarios(t, rigOptions{}) }

// TestGuestSystemdConformance adds what only systemd has: repaired values must be properties of the units too.
func TestGuestSystemdConformance(t *testing.T) {
	repairScenarios(t, rigOptions{driver: kubelet.Systemd})
}

func repairScenarios(t *testing.T, o rigOptions) {
	o.memory = paperMemory
	o.nri.Handlers = foreignHandlers
	r := newRig(t, o)
	for _, s := range r.fitting() {
		t.Run(s.Name, func(t *testing.T) {
			r := r.sub(t)
			r.freshRun()
			r.prepare(&s)
			pods := r.create(s.Pods)
			r.extra = onlyEvents() // Synchronize is what has them repaired
			r.startWith(&s)
			r.settle(&s, pods, slices.DeleteFunc(slices.Clone(s.Wants(r.version, r.driver == kubelet.Systemd)), func(w scenario.Want) bool {
				return strings.HasPrefix(w.File, "@env") || strings.HasPrefix(w.File, "@device") || strings.HasPrefix(w.File, "@access")
			}))
			r.remove(pods)
			r.noPodGroups()
			r.stop(syscall.SIGTERM)
		})
	}
}
