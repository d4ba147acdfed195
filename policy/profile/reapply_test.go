// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package profile_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/policy/profile"
)

// TestReapply: what a profile that is kept up makes of a pod that waits, and what it leaves alone.
func TestReapply(t *testing.T) {
	t.Parallel()
	app := &profile.Selector{Labels: map[string]string{"app": "spark"}}
	labelled := func(f profile.Profile) profile.Profile {
		f.Name, f.Pods, f.Labels = "p", app, map[string]string{"tier": "new"}
		return f
	}
	for name, tc := range map[string]struct {
		profiles    []profile.Profile
		annotations map[string]string
		labels      map[string]string // beside app
		want        string            // labels and annotations that are set, "key=value"
		problem     string
	}{
		"labels and annotations": {profiles: []profile.Profile{{Name: "p", Pods: app, Labels: map[string]string{"tier": "new"}, Annotations: map[string]string{"note": "n"}}},
			want: "tier=new note=n"},
		"mapped": {profiles: []profile.Profile{{Name: "p", Pods: app, LabelKeysMapping: map[string]string{"app": "job"}, AnnotationKeysMapping: map[string]string{"owner": "team"}}},
			annotations: map[string]string{"owner": "me"}, want: "job=spark team=me"},
		"as it says already":                   {profiles: []profile.Profile{labelled(profile.Profile{})}, labels: map[string]string{"tier": "new"}},
		"another pod":                          {profiles: []profile.Profile{{Name: "p", Pods: &profile.Selector{Labels: map[string]string{"app": "web"}}, Labels: map[string]string{"tier": "new"}}}},
		"without a selector":                   {profiles: []profile.Profile{{Name: "p", Labels: map[string]string{"tier": "new"}}}},
		"by name, the last wins":               {profiles: []profile.Profile{{Name: "z", Pods: app, Labels: map[string]string{"tier": "z"}}, {Name: "a", Pods: app, Labels: map[string]string{"tier": "a"}}}, want: "tier=z"},
		"what cannot change stays":             {profiles: []profile.Profile{{Name: "p", Pods: app, QoSClass: "BE", KoordinatorPriority: ptr(int32(5300)), SchedulerName: "x", PriorityClassName: "koord-batch", Labels: map[string]string{protocol.LabelQoSClass: "BE", protocol.LabelPriority: "1", "tier": "new"}}}, labels: map[string]string{protocol.LabelPriority: "2"}, want: "tier=new"},
		"suffixes, and labels with them, stay": {profiles: []profile.Profile{labelled(profile.Profile{LabelSuffixes: map[string]string{"app": "-x"}, Annotations: map[string]string{"note": "n"}})}, want: "note=n"},
		"never":                                {profiles: []profile.Profile{labelled(profile.Profile{Probability: "0"})}},
		"left out at admission":                {profiles: []profile.Profile{labelled(profile.Profile{Probability: "99"})}, annotations: map[string]string{protocol.AnnotationProfiles: "!p"}},
		"drawn at admission":                   {profiles: []profile.Profile{labelled(profile.Profile{Probability: "1"})}, annotations: map[string]string{protocol.AnnotationProfiles: "p"}, want: "tier=new"},
		"everybody, also who was left out":     {profiles: []profile.Profile{labelled(profile.Profile{Probability: "100%"})}, annotations: map[string]string{protocol.AnnotationProfiles: "!p"}, want: "tier=new"},
		"a selector that means nothing":        {profiles: []profile.Profile{{Name: "p", Pods: &profile.Selector{Expressions: []profile.Expression{{Key: "a", Operator: "Near"}}}, Labels: map[string]string{"tier": "new"}}}, problem: "profile p: selector"},
		"a namespace that cannot be read":      {profiles: []profile.Profile{{Name: "p", Pods: app, Namespaces: app, Labels: map[string]string{"tier": "new"}}}, problem: "profile p: away"},
		"what the scheduler writes":            {profiles: []profile.Profile{{Name: "p", Pods: app, Annotations: map[string]string{protocol.AnnotationResourceStatus: "{}", "note": "n"}}}, want: "note=n", problem: "must not write " + protocol.AnnotationResourceStatus},
		"admission's record is not a target":   {profiles: []profile.Profile{{Name: "p", Pods: app, Annotations: map[string]string{protocol.AnnotationProfiles: "x"}}}, problem: "must not write " + protocol.AnnotationProfiles},
	} {
		p := profile.Pod{Namespace: "default", Name: "pod", Labels: map[string]string{"app": "spark"}, Annotations: maps.Clone(tc.annotations)}
		maps.Copy(p.Labels, tc.labels)
		labels := maps.Clone(p.Labels)
		problems := profile.Reapply(&p, func() (map[string]string, error) { return nil, errors.New("away") }, tc.profiles, "uid")
		set, _ := profile.Changes(labels, p.Labels)
		annotations, err := profile.Changes(tc.annotations, p.Annotations)
		if err != nil {
			problems = append(problems, profile.Problem{Reason: err.Error()})
		}
		want := map[string]string{}
		for pair := range strings.FieldsSeq(tc.want) {
			key, value, _ := strings.Cut(pair, "=")
			want[key] = value
		}
		got := map[string]string{}
		maps.Copy(got, set)
		maps.Copy(got, annotations)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		var said []string
		for _, p := range problems {
			said = append(said, p.String())
		}
		if text := strings.Join(said, "\n"); (tc.problem == "") != (text == "") || !strings.Contains(text, tc.problem) {
			t.Errorf("%s: problems %q, want %q", name, text, tc.problem)
		}
		for key := range labels {
			if _, still := p.Labels[key]; !still {
				t.Errorf("%s: label %s is gone", name, key)
			}
		}
	}
}

// TestReapplyShare: a share of the pods that a profile has not met is drawn by their UID, the same each time.
func TestReapplyShare(t *testing.T) {
	t.Parallel()
	f := profile.Profile{Name: "p", Pods: &profile.Selector{}, Probability: "30", Labels: map[string]string{"tier": "new"}}
	n := 0
	for i := range 1000 {
		uid := strings.Repeat("x", i%7) + string(rune('a'+i%26)) + strings.Repeat("y", i%11) + string(rune('a'+i%23))
		var got [2]string
		for j := range got {
			p := profile.Pod{Labels: map[string]string{}}
			profile.Reapply(&p, nil, []profile.Profile{f}, uid)
			got[j] = p.Labels["tier"]
		}
		if got[0] != got[1] {
			t.Fatalf("%s: %q, then %q", uid, got[0], got[1])
		}
		if got[0] != "" {
			n++
		}
	}
	if n < 200 || n > 400 {
		t.Errorf("%d of 1000, want about 300", n)
	}
}
