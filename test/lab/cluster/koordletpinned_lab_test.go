// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
)

// pinned: a pod that has a CPU for itself has no quota, and neither has its container. A kubelet that resizes the pod in place writes its new
// limit into the pod's own cgroup, and hands the container's to the runtime. Both are taken back, and /events and the metric say who it was. The
// NodeResourceTopology tells that the others share one CPU less.
func (n *governed) pinned(t *testing.T) {
	since := time.Now()
	defer func() { n.pinnedFor = span{since, time.Now()} }()
	last := strconv.Itoa(runtime.NumCPU() - 1)
	n.create(t, "pinned", `labels: {koordinator.sh/qosClass: LSR}, annotations: {scheduling.koordinator.sh/resource-status: '{"cpuset":"`+last+`"}'}`,
		"resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {cpu: 100m, memory: 64Mi}}")
	pod := n.ready(t, "pinned")
	free := func() error {
		got, err := n.podQuota(pod)
		if err == nil && got != -1 {
			err = fmt.Errorf("the cgroup of pod pinned has quota %d", got)
		}
		cpus, failed := cgroups.Read(filepath.Join(n.podDir(pod, "cpuset"), idOf(pod)), "cpuset.cpus")
		if failed == nil && cpus != last {
			failed = fmt.Errorf("the container of pod pinned has CPUs %s, want %s", cpus, last)
		}
		return errors.Join(err, failed)
	}
	eventually(t, 60*time.Second, free)

	n.resizeTo(t, "pinned", "20m", "150m")
	eventually(t, 60*time.Second, func() error {
		list, err := n.events(t, since, "cpu.quota")
		by := func(name, source string) bool {
			return slices.ContainsFunc(list, func(e audited) bool {
				return e.Via == "drift" && e.Target.Name == name && e.Found == "15000" && e.Want == "-1" && e.Source == source
			})
		}
		if err == nil && !(by("batch/pinned", "kubelet") && by("batch/pinned/main", "runtime")) {
			err = fmt.Errorf("/events has no drift of the quotas of pinned by the kubelet and by the runtime: %+v", list)
		}
		return err
	})
	n.sees(t, `koord_rt_koordlet_drift_total\{knob="cpu.quota",source="kubelet"\} [1-9]\d*`)
	eventually(t, 60*time.Second, free)
	eventually(t, 60*time.Second, func() error { return n.shareWithout(t, runtime.NumCPU()-1) })
	n.remove(t, "pinned")
	n.up(t)
}

// shareWithout is an error while the NodeResourceTopology says that pods share this CPU, or says of none that they do.
func (n *governed) shareWithout(t *testing.T, cpu int) error {
	t.Helper()
	o, err := n.c.Admin().Get(t.Context(), topologies+n.k.Node)
	if err != nil {
		return err
	}
	var pools []struct {
		CPUSet string `json:"cpuset"`
	}
	told := o.Str("metadata", "annotations", protocol.AnnotationCPUSharedPools)
	if err := json.Unmarshal([]byte(told), &pools); err != nil || len(pools) == 0 {
		return fmt.Errorf("pools of CPUs %q: %v", told, err)
	}
	for _, pool := range pools {
		if set, err := topo.ParseCPUSet(pool.CPUSet); err != nil || set.Empty() || set.Has(cpu) {
			return fmt.Errorf("pods share the CPUs %q, want them without %d: %v", told, cpu, err)
		}
	}
	return nil
}
