// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package profile_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/policy/profile"
)

func ptr[T any](v T) *T { return &v }

// upstreamPod is the pod of upstream's tests of its webhook.
func upstreamPod() profile.Pod {
	return profile.Pod{
		Namespace: "default", Name: "test-pod-1", Labels: map[string]string{"koordinator-colocation-pod": "true"},
		SchedulerName: "nonExistSchedulerName", Priority: ptr(int32(5999)),
		Init: []profile.Container{{Name: "test-init-container-a", Requirements: profile.Requirements{
			Requests: profile.Resources{"cpu": "500m", "memory": "1Gi"}, Limits: profile.Resources{"cpu": "500m", "memory": "1Gi"},
		}}},
		Main: []profile.Container{{Name: "test-container-a", Requirements: profile.Requirements{
			Requests: profile.Resources{"cpu": "1", "memory": "4Gi"}, Limits: profile.Resources{"cpu": "1", "memory": "4Gi"},
		}}},
	}
}

// upstreamProfile is the profile of upstream's tests.
func upstreamProfile() profile.Profile {
	return profile.Profile{
		Name:       "test-profile",
		Namespaces: &profile.Selector{Labels: map[string]string{"enable-koordinator-colocation": "true"}},
		Pods:       &profile.Selector{Labels: map[string]string{"koordinator-colocation-pod": "true"}},
		Labels:     map[string]string{"testLabelA": "valueA"}, Annotations: map[string]string{"testAnnotationA": "valueA"},
		SchedulerName: "koordinator-scheduler", QoSClass: "BE", PriorityClassName: "koordinator-batch", KoordinatorPriority: ptr(int32(1111)),
	}
}

func colocated() (map[string]string, error) {
	return map[string]string{"enable-koordinator-colocation": "true"}, nil
}

// admit is choose, apply and translate, as the webhook does them.
func admit(t *testing.T, p *profile.Pod, namespace profile.Namespace, draw string, list ...profile.Profile) profile.Choice {
	t.Helper()
	choice := profile.Choose(p, namespace, list, draw)
	for _, a := range choice.Apply {
		if _, err := profile.Apply(p, a, &profile.Class{Value: 5999, PreemptionPolicy: "fakePreemptionPolicy"}); err != nil {
			t.Fatal(err)
		}
	}
	if len(choice.Record) > 0 {
		p.Annotate(protocol.AnnotationProfiles, strings.Join(choice.Record, ","))
	}
	if choice.Translate {
		if err := profile.Translate(p); err != nil {
			t.Fatal(err)
		}
	}
	return choice
}

// TestUpstreamExamples repeats the examples of upstream's pkg/webhook/pod/mutating/cluster_colocation_profile_test.go, but for
// the overhead (see Translate) and the patch, which is not this package's.
func TestUpstreamExamples(t *testing.T) {
	t.Parallel()
	batch := profile.Resources{"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "4Gi"}
	plain := profile.Resources{"cpu": "1", "memory": "4Gi"}
	set := map[string]string{
		"koordinator-colocation-pod": "true", "testLabelA": "valueA", protocol.LabelQoSClass: "BE", protocol.LabelPriority: "1111",
	}
	with := func(more ...string) map[string]string {
		out := maps.Clone(set)
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	untouched := map[string]string{"koordinator-colocation-pod": "true"}
	for name, c := range map[string]struct {
		pod             func(*profile.Pod)
		profile         func(*profile.Profile)
		labels          map[string]string
		annotations     map[string]string
		requests, limit profile.Resources
		scheduler       string
	}{
		"mutating pod": {
			labels: set, requests: batch, limit: batch, scheduler: "koordinator-scheduler",
			annotations: map[string]string{"testAnnotationA": "valueA"},
		},
		"set default request to the limit": {
			pod:    func(p *profile.Pod) { p.Main[0].Requests = nil },
			labels: set, requests: batch, limit: batch, scheduler: "koordinator-scheduler",
			annotations: map[string]string{"testAnnotationA": "valueA"},
		},
		"keep limit unset": {
			pod:    func(p *profile.Pod) { p.Main[0].Limits = nil },
			labels: set, requests: batch, limit: nil, scheduler: "koordinator-scheduler",
			annotations: map[string]string{"testAnnotationA": "valueA"},
		},
		"percent 100": {
			profile: func(f *profile.Profile) { f.Probability = "100" },
			labels:  set, requests: batch, limit: batch, scheduler: "koordinator-scheduler",
			annotations: map[string]string{"testAnnotationA": "valueA"},
		},
		"percent 0: not applied, but the pod is batch by its priority": {
			profile: func(f *profile.Profile) { f.Probability = "0" },
			labels:  untouched, requests: batch, limit: batch, scheduler: "nonExistSchedulerName",
		},
		"skip update resource by profile annotation": {
			profile: func(f *profile.Profile) { f.KeepResources = true },
			labels:  set, requests: plain, limit: plain, scheduler: "koordinator-scheduler",
			annotations: map[string]string{"testAnnotationA": "valueA"},
		},
		"mutate pod labels according to labels": {
			pod: func(p *profile.Pod) { p.Labels["label-key-to-load"] = "test-label-value" },
			profile: func(f *profile.Profile) {
				f.LabelKeysMapping = map[string]string{"label-key-to-load": "label-key-to-store"}
			},
			labels: with("label-key-to-load", "test-label-value", "label-key-to-store", "test-label-value"), requests: batch, limit: batch,
			scheduler: "koordinator-scheduler", annotations: map[string]string{"testAnnotationA": "valueA"},
		},
		"a label that is not there is mapped as empty": {
			profile: func(f *profile.Profile) {
				f.LabelKeysMapping = map[string]string{"label-key-to-load-not-exist": "label-key-to-store-not-exist"}
				f.SchedulerName = ""
			},
			labels: with("label-key-to-store-not-exist", ""), requests: batch, limit: batch, scheduler: "nonExistSchedulerName",
			annotations: map[string]string{"testAnnotationA": "valueA"},
		},
		"mutate pod annotations according to annotations": {
			pod: func(p *profile.Pod) {
				p.Annotations = map[string]string{"annotation-key-to-load": "test-annotation-value"}
			},
			profile: func(f *profile.Profile) {
				f.AnnotationKeysMapping = map[string]string{"annotation-key-to-load": "annotation-key-to-store"}
			},
			labels: set, requests: batch, limit: batch, scheduler: "koordinator-scheduler",
			annotations: map[string]string{
				"testAnnotationA": "valueA", "annotation-key-to-load": "test-annotation-value", "annotation-key-to-store": "test-annotation-value",
			},
		},
		"mutate pod labels with labels and suffixes": {
			pod: func(p *profile.Pod) {
				p.Labels["label-key-to-load"], p.Labels["label-key-1"] = "test-label-value", "label-value-1"
			},
			profile: func(f *profile.Profile) {
				f.LabelKeysMapping = map[string]string{
					"label-key-to-load": "label-key-to-store", "label-key-to-load-not-exist": "label-key-to-store-not-exist",
				}
				f.LabelSuffixes = map[string]string{
					"label-key-1": "suffix", "label-key-to-store": "suffix-0", "suffix-label-key-1": "suffix-1",
				}
			},
			labels: with("label-key-1", "label-value-1suffix", "label-key-to-load", "test-label-value", "label-key-to-store",
				"test-label-valuesuffix-0", "label-key-to-store-not-exist", ""),
			requests: batch, limit: batch, scheduler: "koordinator-scheduler", annotations: map[string]string{"testAnnotationA": "valueA"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, f := upstreamPod(), upstreamProfile()
			if c.pod != nil {
				c.pod(&p)
			}
			if c.profile != nil {
				c.profile(&f)
			}
			admit(t, &p, colocated, "x", f)
			delete(p.Annotations, protocol.AnnotationProfiles)
			if len(p.Annotations) == 0 {
				p.Annotations = nil
			}
			if diff := cmp.Diff(c.labels, p.Labels); diff != "" {
				t.Errorf("labels: %s", diff)
			}
			if diff := cmp.Diff(c.annotations, p.Annotations); diff != "" {
				t.Errorf("annotations: %s", diff)
			}
			if diff := cmp.Diff(c.requests, p.Main[0].Requests); diff != "" {
				t.Errorf("requests: %s", diff)
			}
			if diff := cmp.Diff(c.limit, p.Main[0].Limits); diff != "" {
				t.Errorf("limits: %s", diff)
			}
			if p.SchedulerName != c.scheduler {
				t.Errorf("scheduler %s, want %s", p.SchedulerName, c.scheduler)
			}
			if applied := p.PriorityClassName == "koordinator-batch" && *p.Priority == 5999 && p.PreemptionPolicy == "fakePreemptionPolicy"; applied != (c.annotations != nil) {
				t.Errorf("priority class %q, priority %d, preemption %q", p.PriorityClassName, *p.Priority, p.PreemptionPolicy)
			}
		})
	}
}

func TestProfilesApplyInOrderOfNames(t *testing.T) {
	t.Parallel()
	p := upstreamPod()
	choice := admit(t, &p, colocated, "x",
		profile.Profile{Name: "c", Labels: map[string]string{"who": "c"}},
		profile.Profile{Name: "a", Labels: map[string]string{"who": "a", "first": "a"}},
		profile.Profile{Name: "b", Pods: &profile.Selector{Labels: map[string]string{"first": "a"}}, Labels: map[string]string{"who": "b"}},
	)
	// b asks for a label that only a sets: all are chosen before any is applied.
	if got := strings.Join(choice.Record, ","); got != "a,c" || p.Labels["who"] != "c" {
		t.Errorf("applied %s, label %q; want a,c and c", got, p.Labels["who"])
	}
}

func TestSelectors(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"app": "web", "tier": ""}
	expression := func(key, operator string, values ...string) *profile.Selector {
		return &profile.Selector{Expressions: []profile.Expression{{Key: key, Operator: operator, Values: values}}}
	}
	for name, c := range map[string]struct {
		selector *profile.Selector
		want     string // chosen, not, or a part of the problem
	}{
		"nil is everything":             {nil, "chosen"},
		"empty is everything":           {&profile.Selector{}, "chosen"},
		"label":                         {&profile.Selector{Labels: map[string]string{"app": "web"}}, "chosen"},
		"other value":                   {&profile.Selector{Labels: map[string]string{"app": "db"}}, "not"},
		"empty is not absent":           {&profile.Selector{Labels: map[string]string{"none": ""}}, "not"},
		"in":                            {expression("app", "In", "db", "web"), "chosen"},
		"in, absent":                    {expression("none", "In", "db", ""), "not"},
		"not in":                        {expression("app", "NotIn", "web"), "not"},
		"not in, absent":                {expression("none", "NotIn", "web"), "chosen"},
		"exists":                        {expression("tier", "Exists"), "chosen"},
		"exists, absent":                {expression("none", "Exists"), "not"},
		"does not exist":                {expression("none", "DoesNotExist"), "chosen"},
		"does not exist, there":         {expression("tier", "DoesNotExist"), "not"},
		"upstream applies it: operator": {expression("app", "Equals", "web"), "unknown operator"},
		"in without values":             {expression("app", "In"), "needs values"},
		"exists with values":            {expression("app", "Exists", "web"), "takes no values"},
	} {
		p := profile.Pod{Labels: labels}
		for where, f := range map[string]profile.Profile{
			"pod": {Name: "f", Pods: c.selector}, "namespace": {Name: "f", Namespaces: c.selector},
		} {
			choice := profile.Choose(&p, func() (map[string]string, error) { return labels, nil }, []profile.Profile{f}, "x")
			got := "not"
			if len(choice.Apply) == 1 {
				got = "chosen"
			}
			if len(choice.Broken) > 0 {
				got = choice.Broken[0].String()
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("%s, %s: %s, want %s", name, where, got, c.want)
			}
		}
	}
}

func TestNamespaceIsReadOnlyWhenItDecides(t *testing.T) {
	t.Parallel()
	unread := func() (map[string]string, error) { t.Error("the namespace was read"); return nil, nil }
	p := upstreamPod()
	list := []profile.Profile{
		{Name: "a"}, {Name: "b", Namespaces: &profile.Selector{}}, {Name: "c", Pods: &profile.Selector{Labels: map[string]string{"no": "no"}},
			Namespaces: &profile.Selector{Labels: map[string]string{"x": "y"}}},
	}
	if got := profile.Choose(&p, unread, list, "x"); len(got.Apply) != 2 {
		t.Errorf("%d applied, want 2", len(got.Apply))
	}
	// Upstream applies a profile to the pods of a namespace that it cannot read.
	f := upstreamProfile()
	got := profile.Choose(&p, func() (map[string]string, error) { return nil, fmt.Errorf("no namespace") }, []profile.Profile{f}, "x")
	if len(got.Apply) != 0 || len(got.Problems) != 1 || got.Translate || !strings.Contains(got.Problems[0].String(), "no namespace") {
		t.Errorf("unreadable namespace: %+v", got)
	}
}

func TestProbability(t *testing.T) {
	t.Parallel()
	p := upstreamPod()
	taken := func(probability, name, draw string) bool {
		return len(profile.Choose(&p, colocated, []profile.Profile{{Name: name, Probability: probability}}, draw).Apply) == 1
	}
	const draws = 20000
	for probability, percent := range map[string]int{
		"": 100, "100": 100, "100%": 100, "250": 100, "0": 0, "0%": 0, "-3": 0, "1": 1, "30": 30, "30%": 30, "99": 99,
	} {
		n := 0
		for i := range draws {
			if taken(probability, "f", fmt.Sprintf("0000%04x-1111-4222-8333-444455556666", i)) {
				n++
			}
		}
		// 20000 draws of 30 % scatter by 0.33 points; four times that, and nothing at the ends.
		slack := draws * 13 / 1000
		if percent == 0 || percent == 100 {
			slack = 0
		}
		if want := draws * percent / 100; n < want-slack || n > want+slack {
			t.Errorf("%q: %d of %d, want about %d", probability, n, draws, want)
		}
	}
	// Two profiles of one request are drawn apart.
	both := 0
	for i := range draws {
		draw := fmt.Sprintf("%d", i)
		if taken("50", "a", draw) && taken("50", "b", draw) {
			both++
		}
	}
	if both < draws*23/100 || both > draws*27/100 {
		t.Errorf("both of two halves: %d of %d, want a quarter", both, draws)
	}
	broken := profile.Choose(&p, colocated, []profile.Profile{{Name: "f", Probability: "often"}}, "x")
	if len(broken.Apply) != 0 || len(broken.Broken) != 1 {
		t.Errorf("probability often: %+v", broken)
	}
}

// TestSecondTime: the API server asks again when another webhook has changed the pod.
func TestSecondTime(t *testing.T) {
	t.Parallel()
	f := upstreamProfile()
	f.LabelSuffixes = map[string]string{"team": "-be", "testLabelA": "-x"}
	f.LabelKeysMapping = map[string]string{"team": "copy"}
	p := upstreamPod()
	p.Labels["team"] = "a"
	admit(t, &p, colocated, "first", f)
	want := maps.Clone(p.Labels)
	if want["team"] != "a-be" || want["testLabelA"] != "valueA-x" || want["copy"] != "a" {
		t.Fatalf("first time: %v", want)
	}
	// A container came, and somebody took the class away.
	p.Main = append(p.Main, profile.Container{Name: "proxy", Requirements: profile.Requirements{Requests: profile.Resources{"cpu": "100m"}}})
	delete(p.Labels, protocol.LabelQoSClass)
	admit(t, &p, colocated, "second", f)
	if diff := cmp.Diff(want, p.Labels); diff != "" {
		t.Errorf("labels after the second time: %s", diff)
	}
	if got := p.Main[1].Requests["kubernetes.io/batch-cpu"]; got != "100" {
		t.Errorf("the container that came asks for batch-cpu %q, want 100", got)
	}
	// What was drawn stands, whatever the second draw says.
	half := profile.Profile{Name: "half", Probability: "50", Labels: map[string]string{"half": "yes"}}
	for i := range 40 {
		p := upstreamPod()
		admit(t, &p, colocated, fmt.Sprint("first", i), half)
		first := p.Labels["half"]
		delete(p.Labels, "half")
		admit(t, &p, colocated, fmt.Sprint("second", i), half)
		if p.Labels["half"] != first {
			t.Fatalf("draw %d: %q the first time, %q the second", i, first, p.Labels["half"])
		}
	}
	// A record that was made up does not get a pod out of its profile.
	p = upstreamPod()
	p.Annotations = map[string]string{protocol.AnnotationProfiles: "!test-profile,test-profile,,!"}
	admit(t, &p, colocated, "x", f)
	if p.Labels[protocol.LabelQoSClass] != "BE" || p.PriorityClassName != "koordinator-batch" {
		t.Errorf("a made-up record: class %q, priority class %q", p.Labels[protocol.LabelQoSClass], p.PriorityClassName)
	}
}

func TestApplyWhatCannotBeDone(t *testing.T) {
	t.Parallel()
	f := upstreamProfile()
	p := upstreamPod()
	before := maps.Clone(p.Labels)
	if _, err := profile.Apply(&p, profile.Application{Profile: &f}, nil); err == nil || !strings.Contains(err.Error(), `"koordinator-batch"`) {
		t.Errorf("no PriorityClass: %v", err)
	}
	if diff := cmp.Diff(before, p.Labels); diff != "" || p.PriorityClassName != "" || p.Annotations != nil {
		t.Errorf("half a profile was applied: %s", diff)
	}
	long := strings.Repeat("x", 60)
	p.Labels["team"] = long
	problems, err := profile.Apply(&p, profile.Application{Profile: &profile.Profile{Name: "s", LabelSuffixes: map[string]string{"team": "-suffix"}}}, nil)
	if err != nil || len(problems) != 1 || p.Labels["team"] != long {
		t.Errorf("suffix too long: %v, %v, %q", err, problems, p.Labels["team"])
	}
}

func TestKeepScheduler(t *testing.T) {
	t.Parallel()
	f := upstreamProfile()
	p := upstreamPod()
	p.Labels[protocol.KeyKeepScheduler] = "true"
	admit(t, &p, colocated, "x", f)
	if p.SchedulerName != "nonExistSchedulerName" || p.Labels[protocol.LabelQoSClass] != "BE" {
		t.Errorf("scheduler %s, class %s", p.SchedulerName, p.Labels[protocol.LabelQoSClass])
	}
}
