// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri

import (
	"encoding/json"
	"fmt"
)

// CRI-O's verbose sandbox status has the sandbox's runtime spec and, unless its infra container was dropped, image and pid; what
// the kubelet has asked stands in annotations of that spec (server/sandbox_status.go, server/sandbox_run_linux.go). Resources and
// overhead are there from 1.28 on, as JSON of LinuxContainerResources, under a name that was changed later.
const (
	crioParent  = "io.kubernetes.cri-o.CgroupParent"
	crioHandler = "io.kubernetes.cri-o.RuntimeHandler"
)

var (
	crioResources = [...]string{"pod-linux-resources.crio.io", "io.kubernetes.cri-o.PodLinuxResources"}
	crioOverhead  = [...]string{"pod-linux-overhead.crio.io", "io.kubernetes.cri-o.PodLinuxOverhead"}
)

// fromSpec takes what the config does not tell of a sandbox from its spec's annotations. based reports whether the pod's
// resources are told.
func (in *info) fromSpec() (based bool, err error) {
	from, to := in.RuntimeSpec.Annotations, &in.Config.Linux
	parent, crio := from[crioParent]
	if !crio || to.CgroupParent != "" {
		return to.CgroupParent != "" || in.RuntimeSpec.Linux.CgroupsPath != "", nil // containerd, or one that tells nothing
	}
	to.CgroupParent = parent
	if in.RuntimeHandler == "" {
		in.RuntimeHandler = from[crioHandler]
	}
	if based, err = annotated(from, crioResources[:], &to.Resources); err != nil {
		return false, err
	}
	_, err = annotated(from, crioOverhead[:], &to.Overhead)
	return based, err
}

// annotated reads resources from the first of the annotations that is there.
func annotated(from map[string]string, names []string, to *resources) (bool, error) {
	for _, name := range names {
		text, ok := from[name]
		if !ok {
			continue
		}
		if err := json.Unmarshal([]byte(text), to); err != nil {
			return false, fmt.Errorf("read annotation %s: %w", name, err)
		}
		return true, nil
	}
	return false, nil
}
