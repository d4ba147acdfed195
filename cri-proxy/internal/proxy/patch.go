// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proxy

import (
	"maps"
	"slices"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/hooks"
)

// containerPatch adds to our change of a request what hook servers want beyond settings: annotations, variables that go,
// swap, and cgroup files without a knob; parent is the pod's cgroup parent where they have changed it.
func containerPatch(patch *cri.ContainerPatch, r *cri.CreateContainer, answers []hooks.Answer, parent string) (*cri.ContainerPatch, error) {
	if len(answers) == 0 && parent == "" {
		return patch, nil
	}
	if patch == nil {
		patch = &cri.ContainerPatch{}
	}
	patch.CgroupParent = parent
	gone := map[string]bool{}
	for i := range answers {
		a := &answers[i]
		patch.Annotations = append(pairs(a.Annotations), patch.Annotations...) // our mark comes last and holds
		patch.Labels = append(patch.Labels, pairs(a.Labels)...)
		patch.Resources.Unified = append(patch.Resources.Unified, pairs(a.Unified)...)
		if a.Swap.Set {
			patch.Resources.Swap = a.Swap
		}
		for _, name := range a.EnvRemoved {
			gone[name] = true
		}
	}
	if len(gone) == 0 {
		return patch, nil
	}
	had, err := r.Envs()
	if err != nil {
		return nil, err
	}
	had = slices.DeleteFunc(had, func(e cri.Pair) bool { return gone[e.Key] })
	patch.DropEnvs, patch.Envs = true, append(had, patch.Envs...)
	return patch, nil
}

// sandboxPatch is the change of a sandbox that hook servers want; nil for none. We change nothing of it ourselves.
func sandboxPatch(answers []hooks.Answer) *cri.SandboxPatch {
	if len(answers) == 0 {
		return nil
	}
	out := &cri.SandboxPatch{}
	for i := range answers {
		a := &answers[i]
		out.Labels = append(out.Labels, pairs(a.Labels)...)
		out.Annotations = append(out.Annotations, pairs(a.Annotations)...)
		if a.CgroupParent != "" {
			out.CgroupParent = a.CgroupParent
		}
	}
	return out
}

// pairs is a map in the order of its keys.
func pairs(m map[string]string) []cri.Pair {
	out := make([]cri.Pair, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, cri.Pair{Key: k, Value: m[k]})
	}
	return out
}
