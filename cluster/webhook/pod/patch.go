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

// patched is the pod with a profile's strategic merge patch. A patch that would move the pod, or that makes no pod of it, is
// an error. Errors of the libraries can quote the document, and with it a secret in the environment, so only fields and kinds
// of JSON are passed on.
func patched(p *corev1.Pod, patch []byte) (*corev1.Pod, error) {
	doc, err := json.Marshal(p)
	if err != nil {
		return nil, errors.New("the pod cannot be encoded")
	}
	merged, err := strategicpatch.StrategicMergePatch(doc, patch, &corev1.Pod{})
	if err != nil {
		return nil, errors.New("patch: it is no strategic merge patch of a pod; try it with kubectl patch")
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

// kindOf drops the literal that encoding/json adds to a number.
func kindOf(value string) string {
	for _, kind := range []string{"string", "number", "object", "array", "bool"} {
		if len(value) >= len(kind) && value[:len(kind)] == kind {
			return kind
		}
	}
	return "value"
}
