// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pod

import (
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/koord-rt/koord-rt/cluster/internal/quantity"
)

// Bounds of a merge: the library looks for each entry of a list, the patch's and the pod's, among all others. Ten thousand containers in 150 KB
// take it nine seconds, a thousand 0.2. Patches that people write have some hundred bytes, and pods some hundred entries in all their lists
// together.
const (
	maxPatch = 64 << 10
	maxList  = 1000
	maxLists = 8000
)

// errPatch is of a patch that the library refuses or panics of.
var errPatch = errors.New("patch: it is no strategic merge patch of a pod; try it with kubectl patch")

// patched is the pod with a profile's strategic merge patch. A patch that would move the pod, or that makes no pod of it, is
// an error. Errors of the libraries can quote the document, and with it a secret in the environment, so only fields and kinds
// of JSON are passed on.
func patched(p *corev1.Pod, patch []byte) (*corev1.Pod, error) {
	if len(patch) > maxPatch {
		return nil, fmt.Errorf("patch: %d bytes, at most %d: let several profiles make the change", len(patch), maxPatch)
	}
	if err := mergeable(p); err != nil {
		return nil, err
	}
	doc, err := json.Marshal(p)
	if err != nil {
		return nil, errors.New("the pod cannot be encoded")
	}
	merged, err := merge(doc, patch)
	if err != nil {
		return nil, errPatch
	}
	var out corev1.Pod
	// Of what is merged, not of the patch: by its directives it can put an amount where it does not stand itself.
	if err := quantity.Unmarshal(merged, &out); err != nil {
		var typed *json.UnmarshalTypeError
		switch {
		case errors.As(err, &typed):
			return nil, fmt.Errorf("patch: field %s cannot be a JSON %s", typed.Field, kindOf(typed.Value))
		case errors.Is(err, quantity.ErrNumber):
			return nil, fmt.Errorf("patch: %w", err)
		}
		return nil, errors.New("patch: what it makes is no pod")
	}
	if out.Namespace != p.Namespace || out.Name != p.Name || out.GenerateName != p.GenerateName {
		return nil, errors.New("patch: it must not change the pod's name or namespace")
	}
	if len(out.Spec.Containers) == 0 && len(p.Spec.Containers) > 0 { // the API server would refuse the pod for what its maker did not write
		return nil, errors.New("patch: it must leave the pod a container")
	}
	return &out, nil
}

// mergeable refuses a pod whose lists take too long to merge.
func mergeable(p *corev1.Pod) error {
	s := &p.Spec
	longest, all := 0, 0
	count := func(lists ...int) {
		for _, n := range lists {
			longest, all = max(longest, n), all+n
		}
	}
	container := func(c *corev1.Container) {
		count(len(c.Env), len(c.Ports), len(c.VolumeMounts), len(c.VolumeDevices), len(c.ResizePolicy), len(c.Resources.Claims))
	}
	count(len(p.Finalizers), len(p.OwnerReferences), len(s.Containers), len(s.InitContainers), len(s.EphemeralContainers), len(s.Volumes), len(s.Tolerations), len(s.ImagePullSecrets),
		len(s.HostAliases), len(s.TopologySpreadConstraints), len(s.SchedulingGates), len(s.ResourceClaims))
	for i := range s.Containers {
		container(&s.Containers[i])
	}
	for i := range s.InitContainers {
		container(&s.InitContainers[i])
	}
	if longest > maxList || all > maxLists {
		return fmt.Errorf("patch: the pod's lists have %d entries, the longest %d: at most %d and %d can be merged", all, longest, maxLists, maxList)
	}
	return nil
}

// merge is the library's. It panics where an entry of a list has an object or a list for its key, as {"name":{}} among containers.
func merge(doc, patch []byte) (merged []byte, err error) {
	defer func() {
		if recover() != nil {
			merged, err = nil, errPatch
		}
	}()
	return strategicpatch.StrategicMergePatch(doc, patch, &corev1.Pod{})
}

// kindOf drops the literal that encoding/json adds to a number.
func kindOf(value string) string {
	for _, kind := range []string{"string", "number", "object", "array", "bool"} {
		if len(value) >= len(kind) && value[:len(kind)] == kind {
			return kind
		}
	}
	return "value"
}
