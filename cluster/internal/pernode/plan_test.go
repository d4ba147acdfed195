// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pernode

import (
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/koord-rt/koord-rt/cluster/internal/ownership"
)

func applied(fields string) []metav1.ManagedFieldsEntry {
	return []metav1.ManagedFieldsEntry{{
		Manager: Manager, Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(fields),
	}}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	auto := ownership.Tree{"burst": ownership.Tree{"policy": "auto"}}
	none := ownership.Tree{"burst": ownership.Tree{"policy": "none"}}
	const fields = `{"f:metadata": {"f:annotations": {"f:koord-rt.dev/created-by": {}}}, "f:spec": {"f:burst": {"f:policy": {}}}}`
	ours := map[string]string{CreatedBy: Manager}
	for name, c := range map[string]struct {
		found   Found
		apply   ownership.Tree
		bare    bool // applies no spec at all
		created bool
		remove  bool
		again   time.Duration
	}{
		"a new node":             {found: Found{Wanted: auto}, apply: auto, created: true},
		"a node without wishes":  {found: Found{Wanted: ownership.Tree{}}, apply: ownership.Tree{}, created: true},
		"nothing has changed":    {found: Found{Wanted: auto, Stored: &Stored{Spec: auto, Managed: applied(fields), Annotations: ours}}},
		"the strategy changed":   {found: Found{Wanted: none, Stored: &Stored{Spec: auto, Managed: applied(fields), Annotations: ours}}, apply: none, created: true},
		"a user made the object": {found: Found{Wanted: auto, Stored: &Stored{Spec: none}}, apply: auto},
		"nobody knows what is wanted": {found: Found{Wanted: ownership.Tree{}, Held: []ownership.Path{"/burst"},
			Stored: &Stored{Spec: auto, Managed: applied(fields), Annotations: ours}}},
		"nobody knows of something else": {found: Found{Wanted: ownership.Tree{}, Held: []ownership.Path{"/burs"},
			Stored: &Stored{Spec: auto, Managed: applied(fields), Annotations: ours}}, bare: true, created: true},
		"the strategy says nothing any more": {found: Found{Wanted: ownership.Tree{}, Stored: &Stored{Spec: auto, Managed: applied(fields), Annotations: ours}},
			bare: true, created: true},
		"the node is gone":               {found: Found{NodeGone: 1, Stored: &Stored{Spec: auto, Managed: applied(fields), Annotations: ours}}, again: Orphan - 1},
		"the node is gone for long":      {found: Found{NodeGone: Orphan, Stored: &Stored{Spec: auto, Managed: applied(fields), Annotations: ours}}, remove: true},
		"a user's own without a node":    {found: Found{NodeGone: 2 * Orphan, Stored: &Stored{Spec: auto}}},
		"a user's copy of ours":          {found: Found{NodeGone: 2 * Orphan, Stored: &Stored{Spec: auto, Annotations: ours}}},
		"neither node nor object":        {found: Found{NodeGone: 1}},
		"somebody else's mark is no one": {found: Found{NodeGone: 2 * Orphan, Stored: &Stored{Annotations: map[string]string{CreatedBy: "me"}}}},
	} {
		c.found.Orphan = Orphan
		step, err := Plan(c.found)
		if err != nil || step.Delete != c.remove || step.Again != c.again {
			t.Errorf("%s: %+v, %v", name, step, err)
		}
		if (step.Apply != nil) != (c.apply != nil || c.bare) {
			t.Errorf("%s: applies %v, want %v", name, step.Apply, c.apply)
			continue
		}
		if step.Apply == nil {
			continue
		}
		if spec, is := step.Apply.Object["spec"]; is == c.bare || is && !reflect.DeepEqual(spec, c.apply) || (step.Apply.GetAnnotations()[CreatedBy] == Manager) != c.created {
			t.Errorf("%s: applies %v, want %v", name, step.Apply.Object, c.apply)
		}
	}
	if _, err := Plan(Found{Wanted: auto, Stored: &Stored{Managed: applied(`{`)}}); err == nil {
		t.Error("an object whose owners cannot be read is written")
	}
}
