// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package quotamirror

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/koord-rt/koord-rt/api/protocol"
	sigsv1alpha1 "github.com/koord-rt/koord-rt/api/schedulingsigs/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/ownership"
)

// kind is that of the quotas of all three groups.
const kind = "ElasticQuota"

// Source is a quota of one of the documents' groups.
type Source struct {
	Version schema.GroupVersion
	Meta    *metav1.ObjectMeta
	// Says is the same in the canonical group.
	Says   *sigsv1alpha1.ElasticQuota
	Status sigsv1alpha1.ElasticQuotaStatus
}

// Plan is what to write; nil is nothing.
type Plan struct {
	// Mirror is to be applied.
	Mirror *sigsv1alpha1.ElasticQuota
	// Drop is a merge patch that takes out of the mirror's spec what somebody has added: an apply leaves another's fields.
	Drop ownership.Tree
	// Status is the source's.
	Status *sigsv1alpha1.ElasticQuotaStatus
}

// Decide says what to write for a source. stored is the canonical object of its namespace and name, nil for none.
//
// Example: the source says max cpu 8, a user has set max cpu 9 and pods 5 in the mirror: max cpu 8 is applied and pods dropped. The same object
// made by the user is left as it is, and the source's status has the condition Conflict.
func Decide(s *Source, stored *sigsv1alpha1.ElasticQuota, now metav1.Time) (Plan, error) {
	if s.Meta.DeletionTimestamp != nil {
		return Plan{}, nil // the mirror goes too
	}
	var owners ownership.Owners
	if stored != nil {
		var err error
		if owners, err = ownership.OwnersOf(stored.ManagedFields, manager); err != nil {
			return Plan{}, fmt.Errorf("mirror of %s: %w", s, err)
		}
		if !s.made(stored, &owners) {
			return Plan{Status: s.answer(nil, says{conflict: s.conflict(stored)}, now)}, nil
		}
	}
	wanted := s.mirror()
	if stored == nil {
		return Plan{Mirror: wanted, Status: s.answer(nil, says{}, now)}, nil
	}
	plan := Plan{Status: s.answer(&stored.Status, says{}, now)}
	if stored.DeletionTimestamp != nil {
		return plan, nil // made again once it has gone
	}
	want, err := ownership.TreeOf(wanted.Spec)
	if err != nil {
		return Plan{}, fmt.Errorf("write the spec of the mirror of %s: %w", s, err)
	}
	have, err := ownership.TreeOf(stored.Spec)
	if err != nil {
		return Plan{}, fmt.Errorf("read the spec of the mirror of %s: %w", s, err)
	}
	owners.Others = nil // a mirror is its source's alone
	if ownership.Decide(want, have, owners, nil).Needed || !held(stored.Labels, wanted.Labels, owners.MyLabels) ||
		!held(stored.Annotations, wanted.Annotations, owners.MyAnnotations) || !metav1.IsControlledBy(stored, s.Meta) {
		plan.Mirror = wanted
	}
	plan.Drop = added(have, want)
	return plan, nil
}

// Refused is the status of a source whose mirror cannot be written as it should, and why; nil where it says so already. What the mirror says of use
// holds on.
func (s *Source) Refused(stored *sigsv1alpha1.ElasticQuota, why error, now metav1.Time) *sigsv1alpha1.ElasticQuotaStatus {
	var of *sigsv1alpha1.ElasticQuotaStatus
	if stored != nil {
		of = &stored.Status
	}
	text := why.Error()
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason-3], "") + "..."
	}
	return s.answer(of, says{refused: text}, now)
}

// maxReason keeps an admission's long story out of the object.
const maxReason = 1024

// String names the object in messages.
func (s *Source) String() string {
	return kind + " " + s.Meta.Namespace + "/" + s.Meta.Name + " of " + s.Version.Group
}

// mirror is what the canonical group should have. The parent is what admission gives an object that names none: said here, it is not
// somebody else's label.
func (s *Source) mirror() *sigsv1alpha1.ElasticQuota {
	out := s.Says.DeepCopy()
	yes := true
	out.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: s.Version.String(), Kind: kind, Name: s.Meta.Name, UID: s.Meta.UID, Controller: &yes,
	}}
	if out.Labels[protocol.LabelQuotaParent] == "" {
		out.Labels[protocol.LabelQuotaParent] = protocol.QuotaRoot
	}
	return out
}

// made reports whether the object was made from the source, or from one of its kind and name that has gone: its owner says so, or, where a user
// has taken that away, a label that is ours. The label alone can be anybody's.
func (s *Source) made(stored *sigsv1alpha1.ElasticQuota, owners *ownership.Owners) bool {
	for _, r := range stored.OwnerReferences {
		if r.APIVersion == s.Version.String() && r.Kind == kind && r.Name == s.Meta.Name {
			return true
		}
	}
	return owners.MyLabels[sigsv1alpha1.LabelProjectedFrom] && stored.Labels[sigsv1alpha1.LabelProjectedFrom] == s.Version.Group
}

// conflict says who has the name.
func (s *Source) conflict(stored *sigsv1alpha1.ElasticQuota) string {
	name := stored.Namespace + "/" + stored.Name
	if c := metav1.GetControllerOf(stored); c != nil && c.Kind == kind {
		return "metadata.name: " + sigsv1alpha1.GroupVersion.Group + " has an ElasticQuota " + name + " that stands for the one of " + c.APIVersion +
			", and that one counts: delete one of the two, or give this one another name"
	}
	return "metadata.name: " + sigsv1alpha1.GroupVersion.Group + " has an ElasticQuota " + name +
		" that was not made from this one, and that one counts: delete it, or give this one another name"
}

// says is why a mirror is not there, or is not as it should be.
type says struct{ conflict, refused string }

// answer is the source's status with what the mirror says and why there is none; nil where it says so already. The condition Conflict is there in
// any case: an apply of an empty status was seen to leave the one before.
func (s *Source) answer(mirror *sigsv1alpha1.ElasticQuotaStatus, why says, now metav1.Time) *sigsv1alpha1.ElasticQuotaStatus {
	next := &sigsv1alpha1.ElasticQuotaStatus{}
	if mirror != nil {
		next.Used, next.AllocatedQuota, next.PodAllocatedQuota = mirror.Used, mirror.AllocatedQuota, mirror.PodAllocatedQuota
	}
	c := metav1.Condition{
		Type: sigsv1alpha1.QuotaConflict, Status: metav1.ConditionFalse, Reason: "Mirrored",
		Message: "the ElasticQuota of " + sigsv1alpha1.GroupVersion.Group + " by this name stands for this one", LastTransitionTime: now,
	}
	switch {
	case why.conflict != "":
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "NameTaken", why.conflict
	case why.refused != "":
		c.Reason, c.Message = "NameFree", "the name is this one's, see the condition "+sigsv1alpha1.QuotaRefused
	}
	next.Conditions = []metav1.Condition{c}
	if why.refused != "" {
		next.Conditions = append(next.Conditions, metav1.Condition{
			Type: sigsv1alpha1.QuotaRefused, Status: metav1.ConditionTrue, Reason: "MirrorRefused", Message: why.refused, LastTransitionTime: now,
		})
	}
	for i := range next.Conditions {
		c := &next.Conditions[i]
		if was := meta.FindStatusCondition(s.Status.Conditions, c.Type); was != nil && was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		}
	}
	same := func(a, b corev1.ResourceList) bool {
		return maps.EqualFunc(a, b, func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })
	}
	if same(next.Used, s.Status.Used) && same(next.AllocatedQuota, s.Status.AllocatedQuota) && same(next.PodAllocatedQuota, s.Status.PodAllocatedQuota) &&
		equality.Semantic.DeepEqual(next.Conditions, ours(s.Status.Conditions)) {
		return nil
	}
	return next
}

// ours are the conditions that are written here, in the order in which they are: others may have theirs beside them.
func ours(all []metav1.Condition) (out []metav1.Condition) {
	for _, name := range []string{sigsv1alpha1.QuotaConflict, sigsv1alpha1.QuotaRefused} {
		if c := meta.FindStatusCondition(all, name); c != nil {
			out = append(out, *c)
		}
	}
	return out
}

// added are fields that the mirror's spec has and should not, as a merge patch deletes them; nil for none.
func added(have, want ownership.Tree) ownership.Tree {
	out := ownership.Tree{}
	for name, v := range have {
		below, is := v.(ownership.Tree)
		wanted, there := want[name]
		switch {
		case is:
			wanted, _ := wanted.(ownership.Tree)
			if more := added(below, wanted); more != nil {
				out[name] = more
			}
		case !there:
			out[name] = nil
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// held reports whether what is wanted stands there, and is all that was applied.
func held(stored, wanted map[string]string, mine map[string]bool) bool {
	for key, value := range wanted {
		if now, is := stored[key]; !is || now != value {
			return false
		}
	}
	return slices.Equal(slices.Sorted(maps.Keys(wanted)), slices.Sorted(maps.Keys(mine)))
}
