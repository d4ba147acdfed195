// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/host"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// CRI-O, which whoever runs these tests has to bring (make lab-crio): the same scenarios end in the same kernel state there.

func TestCRIOScenarios(t *testing.T) { runScenarios(t, rigOptions{containerd: parts.CRIO}) }

func TestCRIOProxyScenarios(t *testing.T) { proxyScenarios(t, rigOptions{containerd: parts.CRIO}) }

// TestCRIOLifecycle leaves out what compares containerd's own documents or counts its plugins.
func TestCRIOLifecycle(t *testing.T) {
	r := newRig(t, rigOptions{containerd: parts.CRIO})
	for _, l := range []lifecycle{
		{"FirstInstruction", lifecycleFirstInstruction},
		{"WhileSynchronizing", lifecycleWhileSynchronizing},
		{"Resize", lifecycleResize},
		{"ResizeExclusive", lifecycleResizeExclusive},
		{"Restore", lifecycleRestore},
		{"BlockIO", lifecycleBlockIO},
		{"CDI", lifecycleCDI},
		{"NewSandbox", lifecycleNewSandbox},
		{"PluginKilled", lifecyclePluginKilled},
		{"RuntimeKilled", lifecycleRuntimeKilled},
		{"Starts", crioStarts},
	} {
		t.Run(l.name, func(t *testing.T) {
			sub := r.sub(t)
			sub.freshRun()
			l.test(sub)
		})
	}
}

// crioStarts: CRI-O takes a refusal at a container's creation, and goes on after one at its start. The proof, the log and doctor
// tell of it. Should this fail because the start is refused, CRI-O has changed, and adapt/nri and docs/user/safety.md have to follow.
func crioStarts(r *rig) {
	r.up(standard, map[string]any{"features": map[string]string{"blkio": "off"}})
	needs := func(p kubelet.Pod, feature string) kubelet.Pod {
		p.Annotations = mergeMaps(p.Annotations, map[string]string{protocol.AnnotationRequired: feature})
		return p
	}
	run, err := r.kube.StartPod(r.t.Context(), needs(bePod("starts-off"), "blkio"))
	if err == nil {
		r.cleanPod(run)
		r.t.Error("the pod started without a feature that it requires")
	} else if !strings.Contains(err.Error(), "blkio") || !strings.Contains(err.Error(), "koord-rt") {
		r.t.Errorf("the error does not say why: %v", err)
	}
	if run, err = r.kube.RunPod(r.t.Context(), needs(lsrPod("starts-cpu"), "cpuset")); err != nil {
		r.t.Fatal(err)
	}
	r.cleanPod(run)
	r.narrow(run, "0")
	if err := r.kube.StartContainer(r.t.Context(), run, "main"); err != nil {
		r.t.Errorf("CRI-O refuses a start now: %v", err)
	}
	if n := r.metric("koord_rt_nri_proof_total", `result="drift"`); n == 0 {
		r.t.Error("the proof does not count the value that is not in force")
	}
	r.eventually(5*time.Second, func() error {
		out, err := r.ctl("doctor", "--nri-socket", r.host.NRISocket)
		if text := strings.Join(strings.Fields(out), " "); !strings.Contains(text, "starts a container whose start koord-nri refuses") {
			return fmt.Errorf("doctor does not say that fail-closed ends at the creation (%v):\n%s", err, out)
		}
		return nil
	})
}

func TestCRIOProxyLives(t *testing.T) {
	proxyLives(t, rigOptions{containerd: parts.CRIO, nri: host.Options{DisableNRI: true}}, []proxyLife{
		{"Required", proxyRequired},
		{"Restore", proxyRestore},
		{"RuntimeRestarts", proxyRuntimeRestarts},
	})
}
