// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package probe

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/model/cgrouppath"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// The checkpoints of a kubelet with --root-dir=/var/lib/kubelet.
const (
	kubeletCPUState    = "/var/lib/kubelet/cpu_manager_state"
	kubeletMemoryState = "/var/lib/kubelet/memory_manager_state"
)

// KubeletManagers reads the checkpoints of the kubelet's CPU and memory managers, cpu_manager_state and
// memory_manager_state: {"policyName":"static",…} or "none". Without a kubelet there is none. A checkpoint that cannot
// be read counts as static, because two owners of a cpuset are worse than none. An empty path is the usual one.
func KubeletManagers(cpuState, memoryState string) (cpu, memory bool, err error) {
	cpu, errCPU := staticPolicy(cmp.Or(cpuState, kubeletCPUState))
	memory, errMem := staticPolicy(cmp.Or(memoryState, kubeletMemoryState))
	return cpu, memory, errors.Join(errCPU, errMem)
}

func staticPolicy(file string) (bool, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("read %s: %w", file, err)
	}
	policy, err := parsePolicy(b)
	if err != nil {
		return true, fmt.Errorf("parse %s: %w", file, err)
	}
	return strings.EqualFold(policy, "static"), nil
}

// parsePolicy takes policyName out of a checkpoint: "none" or "static" for CPUs, "None" or "Static" for memory
// (https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/, cpu_manager_state).
func parsePolicy(b []byte) (string, error) {
	var state struct {
		PolicyName string `json:"policyName"`
	}
	if err := json.Unmarshal(b, &state); err != nil {
		return "", err
	}
	if state.PolicyName == "" {
		return "", errors.New("no policyName")
	}
	return state.PolicyName, nil
}

// kubeletMemoryQoS takes memory.min above 0 on the kubepods cgroup as a sign of the kubelet's MemoryQoS feature, which
// protects the pods' requests there, unless we may have written it ourselves.
func kubeletMemoryQoS(fs cgroup.FS, systemd bool, o Options) bool {
	if o.KubeletMemoryQoS != Detect {
		return o.KubeletMemoryQoS == Yes
	}
	slice, top := cgrouppath.Kubepods(o.KubepodsRoot)
	if systemd {
		top = slice
	}
	ours := func() bool { return o.OwnMemoryMin != nil && o.OwnMemoryMin(top) }
	if ours() {
		return false
	}
	v, err := fs.Read(plan.ID{Target: plan.Target{Level: plan.LevelQoS, Cgroup: top}, Knob: plan.MemoryMin})
	return err == nil && v.Int() != 0 && !ours() // it may have become ours before it was read
}

// PodsMemory is the memory limit that the kubelet has put on all pods together: the node's capacity without what it reserves, which
// is allocatable and the hard eviction threshold. 0 where there is none, or no pods' cgroup yet. kubepodsRoot is as in Options.
func PodsMemory(fs cgroup.FS, kubepodsRoot string) unit.Bytes {
	slice, plain := cgrouppath.Kubepods(kubepodsRoot)
	for _, top := range []string{slice, plain} {
		v, err := fs.Read(plan.ID{Target: plan.Target{Level: plan.LevelQoS, Cgroup: top}, Knob: plan.MemoryLimit})
		if err == nil && v.Int() > 0 {
			return unit.Bytes(v.Int())
		}
	}
	return 0
}

// exists reports whether a cgroup is there, in the hierarchy that every node has.
func exists(fs cgroup.FS, name string) bool {
	dir, err := fs.Dir(plan.Target{Cgroup: name}, plan.CPUShares)
	if err != nil {
		return false
	}
	st, err := os.Stat(dir)
	return err == nil && st.IsDir()
}
