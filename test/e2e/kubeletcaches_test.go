// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/scenario"
)

// caches: LLC classes that the NodeSLO gets while containers run. Every process goes to its class's group, a change of a class's share is in
// the group's schemata and moves nobody, and a class that is switched off, or goes, gives its processes back to the group of the machine
// and its group's number back to the hardware.
func (n *served) caches() {
	n.t.Helper()
	ls, be := n.ready("ls"), n.ready("be")
	put := func(class string, fields any) {
		n.t.Helper()
		n.put(map[string]any{"resourceQOSStrategy": map[string]any{class: map[string]any{"resctrlQOS": fields}}})
	}
	stands := func(ofLS, ofBE string, masks map[string]string) {
		n.t.Helper()
		n.eventually(shortest, func() error {
			err := errors.Join(n.allIn(ls, ofLS), n.allIn(be, ofBE))
			for group, want := range masks {
				got, readErr := n.read(nil, scenario.Want{Group: group, File: "L3"})
				if readErr != nil || got != want {
					err = errors.Join(err, fmt.Errorf("L3 of group %s: %q, want %q, %v", group, got, want, readErr))
				}
			}
			return err
		})
	}
	const machine = "" // the group that all processes are in by default
	stands(machine, machine, nil)
	put("lsClass", map[string]any{"enable": true, "catRangeStartPercent": 0, "catRangeEndPercent": 80})
	put("beClass", map[string]any{"enable": true})
	stands("LS", "BE", map[string]string{"LS": "0=ffff;1=ffff", "BE": "0=3f;1=3f"})
	put("beClass", map[string]any{"catRangeEndPercent": 50})
	stands("LS", "BE", map[string]string{"LS": "0=ffff;1=ffff", "BE": "0=3ff;1=3ff"})
	put("beClass", map[string]any{"enable": false})
	stands("LS", machine, map[string]string{"LS": "0=ffff;1=ffff"})
	put("lsClass", nil)
	put("beClass", nil)
	stands(machine, machine, nil)
	n.eventually(40*time.Second, func() error { // looked for at each check for drift, and used by nobody at two of them
		left, err := filepath.Glob(resctrl + "/*/tasks")
		if err != nil || len(left) > 0 {
			return fmt.Errorf("resctrl groups of classes that are off: %q, %v", left, err)
		}
		return nil
	})
}

// allIn fails unless each process of a pod's container is in that resctrl group.
func (n *served) allIn(pod cluster.Object, group string) error {
	pids := cgroups.Pids(n.dir(pod))
	if len(pids) == 0 {
		return fmt.Errorf("%s has no processes", pod.Str("metadata", "name"))
	}
	for _, pid := range pids {
		if got, err := resctrlGroup(pid); err != nil || got != group {
			return fmt.Errorf("process %d of %s is in resctrl group %q, want %q, %v", pid, pod.Str("metadata", "name"), got, group, err)
		}
	}
	return nil
}
