// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package workload

import (
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/cgrouppath"
	"github.com/koord-rt/koord-rt/model/unit"
)

// keyCgroup names the cgroup parent in a pod's problems; it is no label or annotation.
const keyCgroup = "cgroup-parent"

// Place sets the pod's cgroup and what follows from it: the Kubernetes class, the class's cgroup, and the UID where the
// runtime has told none. The arguments are the results of cgrouppath.Parent. A pod whose cgroup cannot be placed has no
// Cgroup and a problem: nothing can be written for it, but its containers may still be changed.
func (p *Pod) Place(dir string, err error) {
	if err != nil {
		p.Problems = append(p.Problems, protocol.Problem{Key: keyCgroup, Reason: err.Error()})
		return
	}
	p.Cgroup = dir
	if placed, ok := cgrouppath.OfPod(dir); ok {
		p.KubeQoS, p.QoSCgroup = placed.QoS, placed.QoSCgroup
		if p.UID == "" {
			p.UID = placed.UID
		}
	}
}

// AddOverhead makes the sum of a pod's containers what the kubelet gives the pod's cgroup: the overhead of the runtime
// class is added to it. What is absent or unlimited in the sum stays so: the pod has no such limit.
func (r *Resources) AddOverhead(overhead *Resources) {
	add := func(sum *unit.Opt, more unit.Opt) {
		if sum.Set && sum.V > 0 && more.V > 0 {
			sum.V += more.V
		}
	}
	add(&r.Shares, overhead.Shares)
	add(&r.Quota, overhead.Quota)
	add(&r.MemoryLimit, overhead.MemoryLimit)
}

// EnvNames are the names of variables "NAME=value", nil for none. They are copies: a part of the variable would keep the
// whole of it in memory, and values may be secrets.
func EnvNames(env []string) []string {
	if len(env) == 0 {
		return nil
	}
	out := make([]string, len(env))
	for i, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		out[i] = strings.Clone(name)
	}
	return out
}
