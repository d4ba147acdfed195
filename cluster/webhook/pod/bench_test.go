// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pod

import (
	"context"
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "github.com/koord-rt/koord-rt/api/config/v1alpha1"
)

// shelf is a reader as cheap as the manager's cache: objects by pointer, without decoding.
type shelf struct {
	client.Reader
	profiles []configv1alpha1.ClusterColocationProfile
}

func (s shelf) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if l, ok := list.(*configv1alpha1.ClusterColocationProfileList); ok {
		l.Items = s.profiles
		return nil
	}
	return s.Reader.List(ctx, list, opts...)
}

// BenchmarkMutate is a pod through the mutating webhook, without HTTP: of twenty profiles none or one selects it, with or
// without a strategic merge patch.
func BenchmarkMutate(b *testing.B) {
	for _, c := range []struct {
		name            string
		selected, patch bool
	}{{"unselected", false, false}, {"selected", true, false}, {"patched", true, true}} {
		b.Run(c.name, func(b *testing.B) {
			w := newWorld(b, Options{}, priorityClass("koord-batch", 5000), namespace(enabled(), nil))
			s := shelf{Reader: w.mutator.cached}
			for i := range 20 {
				p := colocation(b, manualProfile)
				p.Name = fmt.Sprintf("profile-%02d", i)
				if i != 7 || !c.selected {
					p.Spec.Selector.MatchLabels = map[string]string{"app": "another"}
				}
				if !c.patch {
					p.Spec.Patch.Raw = nil
				}
				s.profiles = append(s.profiles, *p)
			}
			w.mutator.cached = s
			req := creation(document(b, manualPod))
			b.ReportAllocs()
			for b.Loop() {
				if resp := w.mutator.Handle(w.ctx, req); !resp.Allowed || (len(resp.Patches) > 0) != c.selected {
					b.Fatalf("%+v", resp)
				}
			}
		})
	}
}

// BenchmarkValidate is the same pod, changed, through the validating webhook.
func BenchmarkValidate(b *testing.B) {
	w := newWorld(b, Options{}, colocation(b, manualProfile), priorityClass("koord-batch", 5000), namespace(enabled(), nil))
	_, raw, _ := w.create(b, manualPod)
	req := creation(raw)
	b.ReportAllocs()
	for b.Loop() {
		if resp := w.validator.Handle(w.ctx, req); !resp.Allowed {
			b.Fatal(resp.Result.Message)
		}
	}
}
