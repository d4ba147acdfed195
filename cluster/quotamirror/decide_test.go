// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package quotamirror

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/koord-rt/koord-rt/api/protocol"
	quotav1alpha1 "github.com/koord-rt/koord-rt/api/quota/v1alpha1"
	sigsv1alpha1 "github.com/koord-rt/koord-rt/api/schedulingsigs/v1alpha1"
)

func cpu(text string) corev1.ResourceList {
	return corev1.ResourceList{"cpu": resource.MustParse(text)}
}

// team is a quota of 2 to 8 CPUs.
func team(change func(*quotav1alpha1.ElasticQuota)) *Source {
	q := &quotav1alpha1.ElasticQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q", UID: "u", Labels: map[string]string{"tier": "one"}}}
	q.Spec = sigsv1alpha1.ElasticQuotaSpec{Min: cpu("2"), Max: cpu("8")}
	q.Status.Conditions = []metav1.Condition{{
		Type: sigsv1alpha1.QuotaConflict, Status: metav1.ConditionFalse, Reason: "Mirrored",
		Message: "the ElasticQuota of scheduling.sigs.k8s.io by this name stands for this one",
	}}
	if change != nil {
		change(q)
	}
	return &Source{quotav1alpha1.GroupVersion, &q.ObjectMeta, q.Canonical(), q.Status}
}

// mirrored is the mirror of team as the API server has it after an apply.
func mirrored(change func(*sigsv1alpha1.ElasticQuota)) *sigsv1alpha1.ElasticQuota {
	q := team(nil).mirror()
	q.UID = "m"
	q.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, Operation: metav1.ManagedFieldsOperationApply, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(
		`{"f:metadata":{"f:labels":{"f:tier":{},"f:koord-rt.dev/projected-from":{},"f:` + protocol.LabelQuotaParent + `":{}}},"f:spec":{"f:min":{"f:cpu":{}},"f:max":{"f:cpu":{}}}}`)}}
	if change != nil {
		change(q)
	}
	return q
}

func conflicting(q *quotav1alpha1.ElasticQuota) {
	q.Status.Conditions = []metav1.Condition{{Type: sigsv1alpha1.QuotaConflict, Status: metav1.ConditionTrue, Reason: "NameTaken", Message: "x"}}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	ended := metav1.NewTime(time.Unix(1, 0))
	foreign := func(q *sigsv1alpha1.ElasticQuota) { q.OwnerReferences, q.ManagedFields = nil, nil }
	for name, c := range map[string]struct {
		source *Source
		stored *sigsv1alpha1.ElasticQuota
		mirror bool
		drop   string
		status string // part of it, "" for none
	}{
		"no mirror":    {source: team(nil), mirror: true},
		"a new one":    {source: team(func(q *quotav1alpha1.ElasticQuota) { q.Status.Conditions = nil }), mirror: true, status: `"status":"False"`},
		"as it should": {source: team(nil), stored: mirrored(nil)},
		"another's condition": {source: team(func(q *quotav1alpha1.ElasticQuota) {
			q.Status.Conditions = append([]metav1.Condition{{Type: "Audited", Status: metav1.ConditionTrue}}, q.Status.Conditions...)
		}), stored: mirrored(nil)},
		"the source goes":            {source: team(func(q *quotav1alpha1.ElasticQuota) { q.DeletionTimestamp = &ended })},
		"the mirror goes":            {source: team(nil), stored: mirrored(func(q *sigsv1alpha1.ElasticQuota) { q.DeletionTimestamp, q.Spec.Max = &ended, nil })},
		"the source changed":         {source: team(func(q *quotav1alpha1.ElasticQuota) { q.Spec.Hard = cpu("6") }), stored: mirrored(nil), mirror: true},
		"a label taken back":         {source: team(func(q *quotav1alpha1.ElasticQuota) { q.Labels = nil }), stored: mirrored(nil), mirror: true},
		"another source of the name": {source: team(func(q *quotav1alpha1.ElasticQuota) { q.UID = "u2" }), stored: mirrored(nil), mirror: true},
		"a user's value":             {source: team(nil), stored: mirrored(func(q *sigsv1alpha1.ElasticQuota) { q.Spec.Max = cpu("9") }), mirror: true},
		"a user's owner":             {source: team(nil), stored: mirrored(func(q *sigsv1alpha1.ElasticQuota) { q.OwnerReferences = nil }), mirror: true},
		"a user's fields": {
			source: team(nil), stored: mirrored(func(q *sigsv1alpha1.ElasticQuota) { q.Spec.Max["pods"], q.Spec.Priority = resource.MustParse("5"), 7 }),
			drop: `{"max":{"pods":null},"priority":null}`,
		},
		"a scheduler's note": {source: team(nil), stored: mirrored(func(q *sigsv1alpha1.ElasticQuota) { q.Annotations = map[string]string{"runtime": "{}"} })},
		"used": {
			source: team(nil), stored: mirrored(func(q *sigsv1alpha1.ElasticQuota) { q.Status.Used, q.Status.AllocatedQuota = cpu("1"), cpu("4") }),
			status: `{"used":{"cpu":"1"},"allocatedQuota":{"cpu":"4"},"conditions":[{"type":"Conflict","status":"False"`,
		},
		"used, as is known": {
			source: team(func(q *quotav1alpha1.ElasticQuota) { q.Status.Used = cpu("1000m") }),
			stored: mirrored(func(q *sigsv1alpha1.ElasticQuota) { q.Status.Used = cpu("1") }),
		},
		"somebody else's":    {source: team(nil), stored: mirrored(foreign), status: "scheduling.sigs.k8s.io has an ElasticQuota ns/q that was not made from this one"},
		"it goes":            {source: team(conflicting), mirror: true, status: `"status":"False"`},
		"it has been solved": {source: team(conflicting), stored: mirrored(nil), status: `"status":"False"`},
		"another group's": {source: team(nil), stored: mirrored(func(q *sigsv1alpha1.ElasticQuota) {
			q.OwnerReferences[0].APIVersion, q.Labels[sigsv1alpha1.LabelProjectedFrom] = "koordinator.sh/v1alpha1", "koordinator.sh"
		}), status: "stands for the one of koordinator.sh/v1alpha1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := Decide(c.source, c.stored, metav1.Now())
			if err != nil {
				t.Fatal(err)
			}
			if (p.Mirror != nil) != c.mirror {
				t.Errorf("mirror to apply: %+v", p.Mirror)
			}
			drop, status := "", ""
			if p.Drop != nil {
				text, _ := json.Marshal(p.Drop)
				drop = string(text)
			}
			if p.Status != nil {
				text, _ := json.Marshal(p.Status)
				status = string(text)
			}
			if drop != c.drop || (status == "") != (c.status == "") || !strings.Contains(status, c.status) {
				t.Errorf("drops %s, status %s", drop, status)
			}
			if p.Mirror != nil && (p.Mirror.OwnerReferences[0].UID != c.source.Meta.UID || p.Mirror.Labels[sigsv1alpha1.LabelProjectedFrom] != "quota.koordinator.sh") {
				t.Errorf("%+v", p.Mirror.ObjectMeta)
			}
		})
	}
}

// TestRefused: a source tells why its mirror is not as it should be, once, keeps what the mirror says of use, and tells it no more when the mirror
// stands.
func TestRefused(t *testing.T) {
	t.Parallel()
	begun := metav1.NewTime(time.Unix(5, 0))
	why := errors.New("admission webhook denied the request: " + strings.Repeat("ü", 600))
	stored := mirrored(func(q *sigsv1alpha1.ElasticQuota) { q.Status.Used = cpu("1") })
	for name, s := range map[string]*sigsv1alpha1.ElasticQuota{"no mirror": nil, "an older mirror": stored} {
		got := team(nil).Refused(s, why, begun)
		if got == nil || len(got.Conditions) != 2 {
			t.Fatalf("%s: %+v", name, got)
		}
		conflict, refused := got.Conditions[0], got.Conditions[1]
		if conflict.Type != sigsv1alpha1.QuotaConflict || conflict.Status != metav1.ConditionFalse || strings.Contains(conflict.Message, "stands for this one") {
			t.Errorf("%s: %+v", name, conflict)
		}
		if refused.Type != sigsv1alpha1.QuotaRefused || refused.Status != metav1.ConditionTrue || !strings.HasPrefix(refused.Message, "admission webhook denied") ||
			len(refused.Message) > maxReason || !utf8.ValidString(refused.Message) {
			t.Errorf("%s: %+v", name, refused)
		}
		if used := got.Used.Cpu().String(); (used == "1") != (s != nil) {
			t.Errorf("%s: used %s", name, used)
		}
		known := team(func(q *quotav1alpha1.ElasticQuota) { q.Status = *got })
		if again := known.Refused(s, why, metav1.Now()); again != nil {
			t.Errorf("%s: told again: %+v", name, again)
		}
		if p, err := Decide(known, stored, metav1.Now()); err != nil || p.Status == nil || len(p.Status.Conditions) != 1 || p.Status.Conditions[0].Reason != "Mirrored" {
			t.Errorf("%s, now there: %v, %+v", name, err, p.Status)
		}
	}
}

// TestConflictStays: a condition that stands is not written again, and keeps its time when its words change.
func TestConflictStays(t *testing.T) {
	t.Parallel()
	stored := mirrored(func(q *sigsv1alpha1.ElasticQuota) { q.OwnerReferences, q.ManagedFields = nil, nil })
	begun := metav1.NewTime(time.Unix(5, 0))
	first, err := Decide(team(nil), stored, begun)
	if err != nil || first.Status == nil {
		t.Fatal(err, first)
	}
	known := team(func(q *quotav1alpha1.ElasticQuota) { q.Status = *first.Status })
	if again, err := Decide(known, stored, metav1.Now()); err != nil || again.Status != nil || again.Mirror != nil {
		t.Errorf("%v, %+v", err, again)
	}
	known.Status.Conditions[0].Message = "other words"
	if other, err := Decide(known, stored, metav1.Now()); err != nil || other.Status == nil || !other.Status.Conditions[0].LastTransitionTime.Equal(&begun) {
		t.Errorf("%v, %+v", err, other)
	}
}
