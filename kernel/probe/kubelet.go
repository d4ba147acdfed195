// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/model/plan"
)

// The kubelet's top cgroup by driver.
const (
	kubepodsSlice = "/kubepods.slice"
	kubepodsPlain = "/kubepods"
)

// kubeletManagers reads the checkpoints of the kubelet's CPU and memory managers, cpu_manager_state and
// memory_manager_state: {"policyName":"static",…} or "none". Without a kubelet there is none. A checkpoint that cannot
// be read counts as static, because two owners of a cpuset are worse than none.
func kubeletManagers(dir string) (cpu, memory bool, err error) {
	cpu, errCPU := staticPolicy(filepath.Join(dir, "cpu_manager_state"))
	memory, errMem := staticPolicy(filepath.Join(dir, "memory_manager_state"))
	return cpu, memory, errors.Join(errCPU, errMem)
}

func staticPolicy(path string) (bool, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("read %s: %w", path, err)
	}
	policy, err := parsePolicy(b)
	if err != nil {
		return true, fmt.Errorf("parse %s: %w", path, err)
	}
	return strings.EqualFold(policy, "static"), nil
}

// parsePolicy takes policyName out of a checkpoint: "none" or "static" for CPUs, "None" or "Static" for memory.
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
	if o.OwnMemoryMin {
		return false
	}
	top := kubepodsPlain
	if systemd {
		top = kubepodsSlice
	}
	v, err := fs.Read(plan.ID{Target: plan.Target{Level: plan.LevelQoS, Cgroup: top}, Knob: plan.MemoryMin})
	return err == nil && v.Int() != 0
}

// exists reports whether a cgroup is there, in the hierarchy that every node has.
func exists(fs cgroup.FS, path string) bool {
	dir, err := fs.Dir(plan.Target{Cgroup: path}, plan.CPUShares)
	if err != nil {
		return false
	}
	st, err := os.Stat(dir)
	return err == nil && st.IsDir()
}
