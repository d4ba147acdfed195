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

// maxPatch bounds a profile's patch: the library looks for each entry of a list among all others, and ten thousand containers in 150 KB take it
// nine seconds. Patches that people write have some hundred bytes.
const maxPatch = 64 << 10

// errPatch is of a patch that the library refuses or panics of.
var errPatch = errors.New("patch: it is no strategic merge patch of a pod; try it with kubectl patch")

// patched is the pod with a profile's strategic merge patch. A patch that would move the pod, or that makes no pod of it, is
// an error. Errors of the libraries can quote the document, and with it a secret in the environment, so only fields and kinds
// of JSON are passed on.
func patched(p *corev1.Pod, patch []byte) (*corev1.Pod, error) {
	if len(patch) > maxPatch {
		return nil, fmt.Errorf("patch: %d bytes, at most %d: let several profiles make the change", len(patch), maxPatch)
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
