// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pernode

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/cluster/internal/ownership"
)

// Manager is the field manager of everything that koord-manager applies.
const Manager = slo.ClusterManager

// CreatedBy is the annotation of objects that were made for a node, and go with it.
const CreatedBy = "koord-rt.dev/created-by"

// Orphan is how long an object outlives its node by default: a node that is registered anew finds it as it was.
const Orphan = 10 * time.Minute

// Found is what there is.
type Found struct {
	// Stored is nil where there is no object.
	Stored *Stored
	// NodeGone is for how long there has been no node, 0 where there is one; Orphan is how long an object outlives its node.
	NodeGone, Orphan time.Duration
	// Wanted is the spec that the strategy gives. Held are the fields about which it says nothing for certain: what was applied
	// of them stays.
	Wanted ownership.Tree
	Held   []ownership.Path
	// Alias gives other names of a field that somebody wrote; may be nil. Rules are the API server's over several fields.
	Alias func(ownership.Path) []ownership.Path
	Rules []ownership.Rule
	// Refused are fields of which the API server does not take what is wanted: what was applied of them stays.
	Refused []ownership.Path
}

// Stored is an object.
type Stored struct {
	UID         types.UID
	Spec        ownership.Tree
	Managed     []metav1.ManagedFieldsEntry
	Annotations map[string]string
}

// Step is what to do.
type Step struct {
	// Apply is the configuration to apply, without names; nil for none.
	Apply *unstructured.Unstructured
	// Delete the object.
	Delete bool
	// Again is when to look anew, 0 for never.
	Again time.Duration
	// Overridden are fields that stay as somebody else wrote them, Yielded those that would not go together with them.
	Overridden []string
	Yielded    []ownership.Yielded
}

// Plan decides.
func Plan(f Found) (Step, error) {
	var stored ownership.Tree
	var owners ownership.Owners
	if f.Stored != nil {
		var err error
		if owners, err = ownership.OwnersOf(f.Stored.Managed, Manager); err != nil {
			return Step{}, err
		}
		stored = f.Stored.Spec
	}
	if f.NodeGone > 0 {
		return orphaned(f, owners.MyAnnotations[CreatedBy]), nil
	}
	wanted := ownership.Without(f.Wanted, func(p ownership.Path) bool { return held(p, f.Refused) })
	for p := range owners.Mine {
		if held(p, f.Held) || held(p, f.Refused) {
			wanted = ownership.With(wanted, stored, p)
		}
	}
	wanted, yielded := ownership.Yield(wanted, stored, owners, f.Alias, f.Rules)
	plan := ownership.Decide(wanted, stored, owners, f.Alias)
	step := Step{Overridden: plan.Overridden, Yielded: yielded}
	if !plan.Needed {
		return step, nil
	}
	step.Apply = &unstructured.Unstructured{Object: map[string]any{}}
	if f.Stored == nil || len(plan.Apply) > 0 {
		// Of an empty one from which all is taken back API servers make null, and refuse that: who owns nothing there leaves it out.
		step.Apply.Object["spec"] = plan.Apply
	}
	if f.Stored == nil || owners.MyAnnotations[CreatedBy] {
		// Whoever made the object deletes it; what is not applied again would be taken back.
		step.Apply.SetAnnotations(map[string]string{CreatedBy: Manager})
	}
	if f.Stored == nil {
		// What a user has just made, and is not seen here yet, would get the annotation, too, and go with its node.
		step.Apply.SetResourceVersion(ownership.Absent)
	} else {
		// So would what a user has made in the place of ours; and in the place of a user's own that has gone one would be made without it,
		// which nobody would delete.
		step.Apply.SetUID(f.Stored.UID)
	}
	return step, nil
}

// orphaned is what becomes of an object without a node. It is ours where we have marked it: who makes one from a copy of ours has the annotation too.
func orphaned(f Found, marked bool) Step {
	switch {
	case f.Stored == nil || !marked || f.Stored.Annotations[CreatedBy] != Manager:
		return Step{} // a user's own waits for its node
	case f.NodeGone < f.Orphan:
		return Step{Again: f.Orphan - f.NodeGone}
	}
	return Step{Delete: true}
}

// held reports whether a field is one of those, or part of one.
func held(p ownership.Path, of []ownership.Path) bool {
	for _, h := range of {
		if p == h || strings.HasPrefix(p, h+"/") {
			return true
		}
	}
	return false
}
