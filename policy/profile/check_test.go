// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package profile_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/policy/profile"
)

// expect compares problems with parts of their texts, in order.
func expect(t *testing.T, what string, got []profile.Problem, want ...string) {
	t.Helper()
	ok := len(got) == len(want)
	for i := 0; ok && i < len(got); i++ {
		ok = strings.Contains(got[i].String(), want[i])
	}
	if !ok {
		t.Errorf("%s: %v, want %q", what, got, want)
	}
}

// classed is a pod of a QoS class and a priority that asks for one CPU.
func classed(qos string, priority int32) profile.Pod {
	p := profile.Pod{Priority: &priority, Main: []profile.Container{asks("a", profile.Resources{"cpu": "1"}, nil)}}
	if qos != "" {
		p.Labels = map[string]string{protocol.LabelQoSClass: qos}
	}
	return p
}

// TestCombinations is the whole matrix (seed-manifests.md O6; upstream's
// pkg/webhook/pod/validating/cluster_colocation_profile.go): five combinations and one more are refused.
func TestCombinations(t *testing.T) {
	t.Parallel()
	priorities := map[string]int32{"none": 100000, "prod": 9000, "mid": 7999, "batch": 5000, "free": 3999, "default": 0, "between": 6666}
	refused := []string{
		"BE none", "BE default", "BE between", "BE prod", "LSR none", "LSR default", "LSR between", "LSR mid", "LSR batch", "LSR free",
	}
	for _, qos := range []string{"", "LSE", "LSR", "LS", "BE", "SYSTEM", "gold"} {
		for class, priority := range priorities {
			p := classed(qos, priority)
			want := slices.Contains(refused, qos+" "+class)
			if got := profile.Check(&p); (len(got) > 0) != want {
				t.Errorf("%s with %s: %v, refused should be %v", qos, class, got, want)
			}
		}
	}
	p := classed("LSR", 5999)
	expect(t, "LSR and batch", profile.Check(&p), "label koordinator.sh/qosClass: LSR cannot be combined with priority class koord-batch: set priorityClassName to koord-prod")
	p = classed("BE", 0)
	expect(t, "BE and none", profile.Check(&p), "BE cannot be combined with no Koordinator priority class")
}

func TestCheck(t *testing.T) {
	t.Parallel()
	type r = profile.Resources
	batch := r{"kubernetes.io/batch-cpu": "1", "kubernetes.io/batch-memory": "4Gi"}
	with := func(p profile.Pod, containers ...profile.Container) profile.Pod { p.Main = containers; return p }
	labelled := func(p profile.Pod, key, value string) profile.Pod {
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels[key] = value
		return p
	}
	for name, c := range map[string]struct {
		pod  profile.Pod
		want []string
	}{
		"upstream: non-colocation empty pod":      {profile.Pod{}, nil},
		"upstream: validate defined QoS":          {with(classed("BE", 5000), asks("a", batch, batch)), nil},
		"upstream: forbidden not defined QoS":     {with(classed("", 6666), asks("a", batch, batch)), []string{"must be BE"}},
		"batch-memory in an init container":       {profile.Pod{Init: []profile.Container{asks("i", r{"kubernetes.io/batch-memory": "1"}, nil)}}, []string{"must be BE"}},
		"batch resources of zero ask for nothing": {with(classed("", 0), asks("a", r{"kubernetes.io/batch-cpu": "0"}, nil)), nil},
		"upstream: LSR and prod":                  {classed("LSR", 9999), nil},
		"upstream: LSR, unset CPUs":               {with(classed("LSR", 9999), asks("a", r{"memory": "0Gi"}, nil)), []string{"class LSR must ask for CPUs"}},
		"upstream: LSR, 100m":                     {with(classed("LSR", 9999), asks("a", r{"cpu": "100m"}, nil)), []string{"100m in all"}},
		"LSE, 1500m":                              {with(classed("LSE", 9999), asks("a", r{"cpu": "1500m"}, nil)), []string{"class LSE must ask for whole CPUs"}},
		"LSR, whole in all":                       {with(classed("LSR", 9999), asks("a", r{"cpu": "1500m"}, nil), asks("b", r{"cpu": "500m"}, nil)), nil},
		"LSR, a sidecar counts": {profile.Pod{
			Labels: map[string]string{protocol.LabelQoSClass: "LSR"}, Priority: ptr(int32(9999)),
			Init: []profile.Container{{Name: "s", Sidecar: true, Requirements: profile.Requirements{Requests: r{"cpu": "100m"}}}},
			Main: []profile.Container{asks("a", r{"cpu": "1"}, nil)},
		}, []string{"1100m in all"}},
		"LSR, a small init container does not": {profile.Pod{
			Labels: map[string]string{protocol.LabelQoSClass: "LSR"}, Priority: ptr(int32(9999)),
			Init: []profile.Container{asks("i", r{"cpu": "100m"}, nil)}, Main: []profile.Container{asks("a", r{"cpu": "1"}, nil)},
		}, nil},
		"LSR, pod-level": {profile.Pod{
			Labels: map[string]string{protocol.LabelQoSClass: "LSR"}, Priority: ptr(int32(9999)),
			Whole: profile.Requirements{Requests: r{"cpu": "4"}}, Main: []profile.Container{asks("a", r{"cpu": "100m"}, nil)},
		}, nil},
		"LSR, overhead": {profile.Pod{
			Labels: map[string]string{protocol.LabelQoSClass: "LSR"}, Priority: ptr(int32(9999)), Overhead: r{"cpu": "250m"},
			Main: []profile.Container{asks("a", r{"cpu": "1"}, nil)},
		}, []string{"1250m in all"}},
		// seed-manifests.md 1.15 and O4
		"M16: 5300 in batch":              {labelled(classed("", 5000), protocol.LabelPriority, "5300"), nil},
		"O4: 9100 in batch":               {labelled(classed("", 5000), protocol.LabelPriority, "9100"), []string{"9100 lies outside koord-batch: want 5000 to 5999"}},
		"4500 in batch":                   {labelled(classed("", 5000), protocol.LabelPriority, "4500"), []string{"lies outside"}},
		"6000 in batch":                   {labelled(classed("", 5000), protocol.LabelPriority, "6000"), []string{"lies outside"}},
		"3500 in batch":                   {labelled(classed("", 5000), protocol.LabelPriority, "3500"), []string{"lies outside"}},
		"upstream's manual: 1000":         {labelled(classed("BE", 5000), protocol.LabelPriority, "1000"), nil},
		"upstream's tests: 1111":          {labelled(classed("BE", 5999), protocol.LabelPriority, "1111"), nil},
		"no class, any number":            {labelled(classed("", 100000), protocol.LabelPriority, "9100"), nil},
		"no number":                       {labelled(classed("", 5000), protocol.LabelPriority, "high"), []string{"whole number"}},
		"the label's class is what binds": {labelled(labelled(classed("", 5000), protocol.LabelPriorityClass, "koord-prod"), protocol.LabelPriority, "9100"), nil},
	} {
		expect(t, name, profile.Check(&c.pod), c.want...)
	}
}

// TestCheckUpdate has upstream's examples, and what else must stay.
func TestCheckUpdate(t *testing.T) {
	t.Parallel()
	labels := func(kv ...string) profile.Pod {
		p := profile.Pod{Labels: map[string]string{}}
		for i := 0; i < len(kv); i += 2 {
			p.Labels[kv[i]] = kv[i+1]
		}
		return p
	}
	for name, c := range map[string]struct {
		now, old profile.Pod
		free     bool
		want     []string
	}{
		"immutable QoS":           {labels(protocol.LabelQoSClass, "LS"), labels(protocol.LabelQoSClass, "BE"), false, []string{`"BE" to "LS"`}},
		"remove QoS":              {labels(), labels(protocol.LabelQoSClass, "BE"), false, []string{`"BE" to ""`}},
		"immutable priorityClass": {classed("", 9999), classed("", 5000), false, []string{`priority class: cannot be changed from "koord-batch" to "koord-prod"`}},
		"remove priorityClass":    {profile.Pod{}, classed("", 5000), false, []string{`"koord-batch" to ""`}},
		"class by label": {
			labels(protocol.LabelPriorityClass, "koord-prod"), labels(protocol.LabelPriorityClass, "koord-free"), false, []string{"priority class"},
		},
		"within the band":           {classed("", 5999), classed("", 5000), false, nil},
		"priority":                  {labels(protocol.LabelPriority, "8888"), labels(protocol.LabelPriority, "9999"), false, []string{`"9999" to "8888"`}},
		"priority, allowed by gate": {labels(protocol.LabelPriority, "8888"), labels(protocol.LabelPriority, "9999"), true, nil},
		"remove priority":           {labels(), labels(protocol.LabelPriority, "9999"), false, []string{`"9999" to ""`}},
		"preemptible":               {labels(protocol.LabelQuotaPreemptible, "false"), labels(), false, []string{"preemptible"}},
		"other labels":              {labels("app", "b"), labels("app", "a"), false, nil},
		"wrong before, wrong after": {classed("BE", 9999), classed("BE", 9999), false, nil},
	} {
		expect(t, name, profile.CheckUpdate(&c.now, &c.old, !c.free), c.want...)
	}
}

func TestTrust(t *testing.T) {
	t.Parallel()
	type m = map[string]string
	user := profile.Asker{Namespace: "team", Limits: protocol.DefaultPodLimits()}
	scheduler := profile.Asker{Namespace: "team", Limits: protocol.DefaultPodLimits(), Scheduler: true}
	none := profile.Asker{Namespace: "team"}
	status, devices := protocol.AnnotationResourceStatus, protocol.AnnotationDeviceAllocated
	for name, c := range map[string]struct {
		now, old m
		by       profile.Asker
		want     []string
	}{
		"nothing":                    {nil, nil, user, nil},
		"a user's CPUs":              {m{status: "{}", "a": "b"}, nil, user, []string{"resource-status: only the scheduler"}},
		"a user's devices":           {m{devices: "{}"}, nil, user, []string{"device-allocated: only the scheduler"}},
		"internal keys":              {m{"internal.scheduling.koordinator.sh/x": "1"}, nil, user, []string{"only the scheduler"}},
		"the scheduler's":            {m{status: "{}", devices: "{}"}, m{}, scheduler, nil},
		"a user changes them":        {m{status: `{"cpuset":"0-63"}`}, m{status: "{}"}, user, []string{"only the scheduler"}},
		"a user removes them":        {m{}, m{status: "{}"}, user, []string{"only the scheduler"}},
		"a user changes another one": {m{status: "{}", "a": "b"}, m{status: "{}"}, user, nil},
		"reserve-pod is nobody's":    {m{protocol.AnnotationReservePod: "true"}, nil, scheduler, []string{"reserved for the scheduler's own"}},
		"what admission wrote":       {m{protocol.AnnotationExtendedResource: "{}"}, m{protocol.AnnotationExtendedResource: "{ }"}, scheduler, []string{"follows the pod's requests"}},
		"what admission wrote, gone": {m{}, m{protocol.AnnotationExtendedResource: "{}"}, user, []string{"follows the pod's requests"}},
		"new with it":                {m{protocol.AnnotationExtendedResource: "{}"}, nil, user, nil},
		"OOM immunity":               {m{protocol.AnnotationOOMScoreAdj: "-1000"}, nil, user, []string{"at least 0"}},
		"a knob by default":          {m{protocol.AnnotationCPUBurst: "{}"}, nil, user, nil},
		"a knob that is not allowed": {m{protocol.AnnotationCPUBurst: "{}"}, nil, none, []string{"cpuBurst is not allowed here: ask who runs the cluster for the annotation koord-rt.dev/pod-limits on namespace team"}},
		"it may be taken away":       {m{}, m{protocol.AnnotationCPUBurst: "{}"}, none, nil},
		"it stays as it was":         {m{protocol.AnnotationCPUBurst: "{}", "a": "b"}, m{protocol.AnnotationCPUBurst: "{}"}, none, nil},
		"every one is told":          {m{status: "{}", devices: "{}", protocol.AnnotationResctrl: "{}"}, nil, none, []string{"resctrl", "device-allocated", "resource-status"}},
	} {
		expect(t, name, profile.CheckTrust(c.now, c.old, c.by), c.want...)
		if limited := profile.Concerned(c.now, c.old); limited && c.want == nil && !slices.Contains([]string{"a knob by default"}, name) {
			t.Errorf("%s: the namespace is read for nothing", name)
		}
	}
}
