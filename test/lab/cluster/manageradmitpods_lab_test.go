// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// Namespaces of the cases: one that says nothing, one that a profile selects, two that say what their pods may carry (one of them in words that
// mean nothing), and one that opts out.
const admitNamespaces = `
apiVersion: v1
kind: Namespace
metadata: {name: admit}
---
apiVersion: v1
kind: Namespace
metadata: {name: red, labels: {team: red}}
---
apiVersion: v1
kind: Namespace
metadata: {name: limited, annotations: {koord-rt.dev/pod-limits: "cpuBurst,oom-score-adj>=-100"}}
---
apiVersion: v1
kind: Namespace
metadata: {name: unread, annotations: {koord-rt.dev/pod-limits: "everything"}}
---
apiVersion: v1
kind: Namespace
metadata: {name: left, labels: {koord-rt.dev/opt-out: "true"}}
`

const profilePath = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"

// admitProfiles by their names; the last one that is made is "pods-words".
var admitProfiles = map[string]string{
	"pods-all":   "{selector: {matchLabels: {case: chance}}, probability: 100%, labels: {all: taken}}",
	"pods-be":    "{selector: {matchLabels: {case: be}}, qosClass: BE, priorityClassName: koord-batch, koordinatorPriority: 5100}",
	"pods-half":  "{selector: {matchLabels: {case: half}}, probability: 50, labels: {half: taken}}",
	"pods-keep":  "{selector: {matchLabels: {case: keep}}, qosClass: BE, priorityClassName: koord-batch}",
	"pods-knobs": "{selector: {matchLabels: {case: knobs}}, annotations: {koordinator.sh/memoryQOS: '{}'}}",
	"pods-lost":  "{selector: {matchLabels: {case: lost}}, labels: {lost: taken}, priorityClassName: nobodys}",
	"pods-mid":   "{selector: {matchLabels: {case: mid}}, qosClass: LS, priorityClassName: koord-mid}",
	"pods-none":  "{selector: {matchLabels: {case: chance}}, probability: 0, labels: {none: taken}}",
	"pods-red":   "{namespaceSelector: {matchLabels: {team: red}}, selector: {matchLabels: {case: space}}, labels: {of: red}}",
	"pods-unfit": "{selector: {matchLabels: {case: unfit}}, labels: {unfit: taken}, patch: {spec: {containers: 5}}}",
	"pods-words": `{selector: {matchLabels: {case: words}}, labels: {set: "1"}, annotations: {note: x}, labelKeysMapping: {app: copied},
  annotationKeysMapping: {from: to}, labelSuffixes: {app: -blue}, schedulerName: other,
  patch: {metadata: {annotations: {patched: "yes"}}, spec: {nodeSelector: {pool: lent}, containers: [{name: main, env: [{name: A, value: b}]}]}}}`,
}

// podCase is a new pod: what comes of it, or why it is refused.
type podCase struct {
	name, in   string // namespace; "" is admit
	meta, spec string // YAML; without a spec there is one container that asks for nothing
	want       string // YAML of what the admitted pod has at least; null is what it must not have
	refused    []string
	by         *cluster.Client // nil is an administrator
}

// text is the pod of a case.
func (c *podCase) text() string {
	spec := c.spec
	if spec == "" {
		spec = "{containers: [{name: main, image: x}]}"
	}
	return "metadata: " + strings.TrimSuffix(c.meta, "}") + ", generateName: case-}\nspec: " + spec + "\n"
}

// admits creates the pods of all cases by dry runs.
func (a *admitted) admits(t *testing.T, cases []podCase) {
	t.Helper()
	for i := range cases {
		if err := a.answered(t, func() error { return a.admit(t, &cases[i]) }); err != nil {
			t.Errorf("%s: %v", cases[i].name, err)
		}
	}
}

func (a *admitted) admit(t *testing.T, c *podCase) error {
	t.Helper()
	pod, err := cluster.ParseObject([]byte(c.text()))
	if err != nil {
		return err
	}
	by, in := c.by, c.in
	if by == nil {
		by = a.c.Admin()
	}
	if in == "" {
		in = "admit"
	}
	got, err := by.Create(t.Context(), "/api/v1/namespaces/"+in+"/pods?dryRun=All&fieldValidation=Strict", pod)
	return became(got, err, c.want, c.refused)
}

// became compares an answer with what is wanted, or with the parts of the refusal that is.
func became(got cluster.Object, err error, want string, refused []string) error {
	switch {
	case err != nil && len(refused) == 0:
		return err
	case err == nil && len(refused) > 0:
		return fmt.Errorf("passes, want a refusal that says %q", refused)
	case err != nil:
		for _, part := range refused {
			if !strings.Contains(err.Error(), part) {
				return fmt.Errorf("%w; want %q", err, part)
			}
		}
		return nil
	}
	wanted, err := cluster.ParseObject([]byte(want))
	if err != nil {
		return err
	}
	return lacks(map[string]any(wanted), map[string]any(got), "pod")
}

// lacks says where an object differs from what it must have at least: maps may have more, lists may not, and null must not be there.
func lacks(want, got any, at string) error {
	switch w := want.(type) {
	case map[string]any:
		g, _ := got.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(w)) {
			if err := lacks(w[key], g[key], at+"."+key); err != nil {
				return err
			}
		}
		return nil
	case []any:
		g, _ := got.([]any)
		if len(g) != len(w) {
			return fmt.Errorf("%s: %v, want %v", at, got, want)
		}
		for i := range w {
			if err := lacks(w[i], g[i], fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
		return nil
	}
	if fmt.Sprint(want) != fmt.Sprint(got) {
		return fmt.Errorf("%s: %v, want %v", at, got, want)
	}
	return nil
}

// newPods: what profiles make of new pods, what is refused of them, and what of stored ones, at a real API server.
func (a *admitted) newPods(t *testing.T) {
	ctx := t.Context()
	a.user(t, admitNamespaces)
	for _, name := range []string{"admit", "red", "limited", "unread", "left"} {
		if err := a.c.Namespace(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(admitProfiles)) {
		annotations := "{}"
		if name == "pods-keep" {
			annotations = `{config.koordinator.sh/skip-update-resources: ""}`
		}
		a.user(t, "apiVersion: config.koordinator.sh/v1alpha1\nkind: ClusterColocationProfile\nmetadata: {name: "+name+", annotations: "+annotations+
			"}\nspec: "+admitProfiles[name]+"\n")
	}
	t.Cleanup(func() {
		for name := range admitProfiles {
			if err := a.c.Admin().Delete(ctxAfter(t), profilePath+"/"+name, -1); err != nil {
				t.Error(err)
			}
		}
	})
	words := profileCases()
	passes(t, "the profile that was made last", func() error { return a.admit(t, &words[0]) }) // the cache has the others then
	a.admits(t, words)
	a.admits(t, requestCases())
	scheduler, err := a.c.As("system:serviceaccount:"+system+":koord-scheduler", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	a.admits(t, refusedCases(scheduler))
	a.highPriority(t)
	a.admits(t, combinations())
	a.untouched(t, "admit")
	a.draws(t)
	a.stored(t, scheduler)
}

// draws: of pods that a profile takes by chance some are changed and some are not, and each says which it is.
func (a *admitted) draws(t *testing.T) {
	t.Helper()
	const all = 60
	c, taken := podCase{meta: "{labels: {case: half}}"}, 0
	pod, err := cluster.ParseObject([]byte(c.text()))
	if err != nil {
		t.Fatal(err)
	}
	for range all {
		if err := a.answered(t, func() error {
			got, err := a.c.Admin().Create(t.Context(), "/api/v1/namespaces/admit/pods?dryRun=All", pod)
			word, record := got.Str("metadata", "labels", "half"), got.Str("metadata", "annotations", protocol.AnnotationProfiles)
			switch {
			case err != nil:
				return err
			case word == "taken" && record == "pods-half":
				taken++
			case word != "" || record != "!pods-half":
				return fmt.Errorf("label %q, record %q", word, record)
			}
			return nil
		}); err != nil {
			t.Fatalf("a draw: %v", err)
		}
	}
	if taken < all/6 || taken > all*5/6 { // five standard deviations
		t.Errorf("%d of %d pods were taken by a probability of 50", taken, all)
	}
}

// profileCases: which profiles apply, and what they do. The first one is of the last profile.
func profileCases() []podCase {
	const words = "metadata: {labels: {set: \"1\", app: web-blue, copied: web}, annotations: {note: x, to: f, patched: \"yes\", koord-rt.dev/profiles: pods-words}}\n" +
		"spec: {schedulerName: %s, nodeSelector: {pool: lent}, containers: [{name: main, image: x, env: [{name: A, value: b}]}]}"
	const untouched = "metadata: {labels: {set: null, copied: null, app: web}, annotations: {note: null, koord-rt.dev/profiles: null}}\n" +
		"spec: {schedulerName: default-scheduler, nodeSelector: null}"
	return []podCase{
		{
			name: "labels, annotations, mapped keys, a suffix, a scheduler and a patch",
			meta: "{labels: {case: words, app: web}, annotations: {from: f}}", want: fmt.Sprintf(words, "other"),
		},
		{
			name: "keep-scheduler",
			meta: "{labels: {case: words, app: web, koord-rt.dev/keep-scheduler: \"true\"}, annotations: {from: f}}", want: fmt.Sprintf(words, "default-scheduler"),
		},
		{name: "a pod that opts out", meta: "{labels: {case: words, app: web, koord-rt.dev/opt-out: \"true\"}}", want: untouched},
		{name: "a namespace that opts out", in: "left", meta: "{labels: {case: words, app: web}}", want: untouched},
		{name: "a namespace that is selected", in: "red", meta: "{labels: {case: space}}", want: "metadata: {labels: {of: red}, annotations: {koord-rt.dev/profiles: pods-red}}"},
		{name: "a namespace that is not", meta: "{labels: {case: space}}", want: "metadata: {labels: {of: null}, annotations: {koord-rt.dev/profiles: null}}"},
		{
			name: "probabilities 0 and 100", meta: "{labels: {case: chance}}",
			want: `metadata: {labels: {all: taken, none: null}, annotations: {koord-rt.dev/profiles: "pods-all,!pods-none"}}`,
		},
		{name: "a PriorityClass that is not there", meta: "{labels: {case: lost}}", want: "metadata: {labels: {lost: null}, annotations: {koord-rt.dev/profiles: null}}"},
		{name: "a patch that fits no pod", meta: "{labels: {case: unfit}}", want: "metadata: {labels: {unfit: null}, annotations: {koord-rt.dev/profiles: null}}"},
	}
}

// gpuSpec is a pod that asks for some percent of a device.
func gpuSpec(n string) string {
	return "{containers: [{name: main, image: x, resources: {requests: {koordinator.sh/gpu: " + n + "}, limits: {koordinator.sh/gpu: " + n + "}}}]}"
}

// requestCases: what becomes of what a pod asks for.
func requestCases() []podCase {
	const one = "{containers: [{name: main, image: x, resources: {requests: {cpu: 1500m, memory: 4Gi}, limits: {cpu: \"2\", memory: 4Gi}}}]}"
	const batch = `{requests: {kubernetes.io/batch-cpu: "500", kubernetes.io/batch-memory: 1Gi, cpu: null, memory: null},
    limits: {kubernetes.io/batch-cpu: "500", kubernetes.io/batch-memory: 1Gi, cpu: null, memory: null}}`
	spec := func(limit, request, memory string) string { // what the node is told of a container
		list := func(cpu string) string {
			return fmt.Sprintf(`{"kubernetes.io/batch-cpu":%q,"kubernetes.io/batch-memory":%q}`, cpu, memory)
		}
		return `{"limits":` + list(limit) + `,"requests":` + list(request) + `}`
	}
	gpus := func(percent, shared string) string {
		list := fmt.Sprintf("{koordinator.sh/gpu: null, koordinator.sh/gpu-core: %q, koordinator.sh/gpu-memory-ratio: %q, koordinator.sh/gpu.shared: %q}", percent, percent, shared)
		return "spec: {containers: [{resources: {requests: " + list + ", limits: " + list + "}}]}"
	}
	return []podCase{
		{
			name: "containers, init containers and sidecars of a batch pod", meta: "{labels: {case: be}}",
			spec: `{initContainers: [{name: first, image: x, resources: {limits: {cpu: 500m, memory: 1Gi}}},
  {name: side, image: x, restartPolicy: Always, resources: {requests: {cpu: 500m, memory: 1Gi}, limits: {cpu: 500m, memory: 1Gi}}}],
  containers: [{name: main, image: x, resources: {requests: {cpu: 1500m, memory: 4Gi}, limits: {cpu: "2", memory: 4Gi}}}]}`,
			want: `metadata: {labels: {koordinator.sh/qosClass: BE, koordinator.sh/priority: "5100"}, annotations: {node.koordinator.sh/extended-resource-spec: '{"containers":{` +
				`"first":` + spec("500", "500", "1073741824") + `,"main":` + spec("2000", "1500", "4294967296") + `,"side":` + spec("500", "500", "1073741824") + `}}'}}
spec: {priorityClassName: koord-batch, priority: 5000, preemptionPolicy: PreemptLowerPriority, initContainers: [{resources: ` + batch + `}, {resources: ` + batch + `}],
  containers: [{resources: {requests: {kubernetes.io/batch-cpu: 1500, kubernetes.io/batch-memory: 4Gi, cpu: null, memory: null}, limits: {kubernetes.io/batch-cpu: 2k, kubernetes.io/batch-memory: 4Gi, cpu: null}}}]}`,
		},
		{
			name: "a mid pod", meta: "{labels: {case: mid}}", spec: one,
			want: `metadata: {labels: {koordinator.sh/qosClass: LS}}
spec: {priority: 7000, containers: [{resources: {requests: {kubernetes.io/mid-cpu: 1500, kubernetes.io/mid-memory: 4Gi, cpu: null, memory: null}, limits: {kubernetes.io/mid-cpu: 2k, cpu: null}}}]}`,
		},
		{
			name: "a batch profile that keeps requests", meta: "{labels: {case: keep}}", spec: one,
			want: `metadata: {labels: {koordinator.sh/qosClass: BE}, annotations: {node.koordinator.sh/extended-resource-spec: null}}
spec: {priority: 5000, containers: [{resources: {requests: {cpu: 1500m, memory: 4Gi, kubernetes.io/batch-cpu: null}}}]}`,
		},
		{
			name: "pod-level resources of one container", meta: "{labels: {case: be}}",
			spec: `{resources: {requests: {cpu: 500m, memory: 1Gi}, limits: {cpu: 500m, memory: 1Gi}}, containers: [{name: main, image: x}]}`,
			want: `spec: {resources: null, containers: [{resources: ` + batch + `}]}`,
		},
		{
			name: "pod-level resources of two containers", meta: "{labels: {case: be}}",
			spec: `{resources: {requests: {cpu: 500m, memory: 1Gi}}, containers: [{name: main, image: x}, {name: more, image: x}]}`,
			want: `metadata: {labels: {koordinator.sh/qosClass: BE}, annotations: {node.koordinator.sh/extended-resource-spec: null}}
spec: {priority: 5000, resources: {requests: {cpu: 500m, memory: 1Gi}}}`,
		},
		{
			name: "amounts for the node that are made up", meta: `{annotations: {node.koordinator.sh/extended-resource-spec: '{"containers":{"main":{"limits":{"kubernetes.io/batch-cpu":9000}}}}'}}`,
			want: "metadata: {annotations: {node.koordinator.sh/extended-resource-spec: null}}",
		},
		{
			name: "the same past our changes", in: "left", refused: []string{"node.koordinator.sh/extended-resource-spec: differs from the pod's requests"},
			meta: `{annotations: {node.koordinator.sh/extended-resource-spec: '{"containers":{"main":{"limits":{"kubernetes.io/batch-cpu":9000}}}}'}}`,
		},
		{name: "two devices", meta: "{labels: {a: b}}", spec: gpuSpec("200"), want: gpus("200", "2")},
		{name: "half a device", meta: "{labels: {a: b}}", spec: gpuSpec("50"), want: gpus("50", "1")},
	}
}

// refusedCases: what of a new pod is refused, and what is nearest to it and is not.
func refusedCases(scheduler *cluster.Client) []podCase {
	labels := func(list string) string { return "{labels: {" + list + "}}" }
	annotations := func(list string) string { return "{annotations: {" + list + "}}" }
	cpus := func(class, main, side string) string {
		return "{priorityClassName: " + class + ", initContainers: [{name: side, image: x, restartPolicy: Always, resources: {requests: {cpu: " + side +
			"}}}], containers: [{name: main, image: x, resources: {requests: {cpu: " + main + "}}}]}"
	}
	const batch = "{priorityClassName: koord-batch, containers: [{name: main, image: x, resources: {requests: {kubernetes.io/batch-cpu: 500}, limits: {kubernetes.io/batch-cpu: 500}}}]}"
	const low = "{priorityClassName: koord-batch, containers: [{name: main, image: x}]}"
	const forged = `scheduling.koordinator.sh/resource-status: '{"cpuset":"0-3"}'`
	const others = "only the scheduler may set, change or remove it"
	return []podCase{
		{
			name: "BE of no priority", meta: labels("koordinator.sh/qosClass: BE"),
			refused: []string{"BE cannot be combined with no Koordinator priority class", "vpod-create", "denied the request"},
		},
		{
			name: "LSR with a part of a CPU", meta: labels("koordinator.sh/qosClass: LSR"), spec: cpus("koord-prod", "1", "500m"),
			refused: []string{"1500m in all", "whole CPUs"},
		},
		{name: "LSR with whole CPUs in parts", meta: labels("koordinator.sh/qosClass: LSR"), spec: cpus("koord-prod", "1500m", "500m")},
		{
			name: "batch resources of another class", meta: labels("koordinator.sh/qosClass: LS"), spec: batch,
			refused: []string{"asks for kubernetes.io/batch-cpu must be BE"},
		},
		{name: "batch resources of BE", meta: labels("koordinator.sh/qosClass: BE"), spec: batch},
		{
			name: "a rank of another class", meta: labels(`koordinator.sh/priority: "9100"`), spec: low,
			refused: []string{"9100 lies outside koord-batch: want 5000 to 5999"},
		},
		{name: "a rank of the class", meta: labels(`koordinator.sh/priority: "5100"`), spec: low},
		{name: "a rank below all", meta: labels(`koordinator.sh/priority: "1000"`), spec: low},
		{name: "the scheduler's word from another", meta: annotations(forged), refused: []string{"annotation scheduling.koordinator.sh/resource-status: " + others}},
		{name: "the same in a namespace that opts out", in: "left", meta: annotations(forged), refused: []string{others}},
		{name: "an internal word from another", meta: annotations("internal.scheduling.koordinator.sh/x: z"), refused: []string{others}},
		{
			name: "what it writes when it binds, from another",
			meta: annotations(`scheduling.koordinator.sh/bind-timestamp: "1", scheduling.koordinator.sh/gpu-minors: "0", ` +
				`scheduling.koordinator.sh/bind-gang-group-id: a, scheduling.koordinator.sh/bind-gang-member-count: "2"`),
			refused: []string{
				"annotation scheduling.koordinator.sh/bind-timestamp: " + others, "annotation scheduling.koordinator.sh/gpu-minors: " + others,
				"annotation scheduling.koordinator.sh/bind-gang-group-id: " + others, "annotation scheduling.koordinator.sh/bind-gang-member-count: " + others,
			},
		},
		{name: "the scheduler's word", meta: annotations(forged), by: scheduler, want: "metadata: " + annotations(forged)},
		{
			name: "the scheduler's bookkeeping", meta: annotations(`scheduling.koordinator.sh/reserve-pod: "true"`), by: scheduler,
			refused: []string{"reserved for the scheduler's own bookkeeping"},
		},
		{
			name: "another pods' victim", meta: annotations(`koordinator.sh/oom-score-adj: "-1"`),
			refused: []string{"oom-score-adj -1, at least 0 is allowed here", "koord-rt.dev/pod-limits on namespace admit"},
		},
		{name: "a knob where nothing is said", meta: annotations("koordinator.sh/memoryQOS: '{}'")},
		{name: "as far as the namespace says", in: "limited", meta: annotations(`koordinator.sh/oom-score-adj: "-100", koordinator.sh/cpuBurst: '{}'`)},
		{
			name: "farther", in: "limited", meta: annotations(`koordinator.sh/oom-score-adj: "-101"`),
			refused: []string{"oom-score-adj -101, at least -100 is allowed here"},
		},
		{name: "a knob that it does not name", in: "limited", meta: annotations("koordinator.sh/memoryQOS: '{}'"), refused: []string{"memoryQOS is not allowed here"}},
		{name: "a share of the cache", in: "limited", meta: annotations("node.koordinator.sh/resctrl: '{}'"), refused: []string{"resctrl is not allowed here"}},
		{name: "a share of the disk", in: "limited", meta: annotations("koordinator.sh/blkioQOS: '{}'"), refused: []string{"blkioQOS is not allowed here"}},
		{name: "a class of CPU", in: "limited", meta: annotations("koordinator.sh/cpuQOS: '{}'"), refused: []string{"cpuQOS is not allowed here"}},
		{name: "a share of the network", in: "limited", meta: annotations("koordinator.sh/networkQOS: '{}'"), refused: []string{"networkQOS is not allowed here"}},
		{
			name: "farther for one container", in: "limited", meta: annotations(`koordinator.sh/oom-score-adj-spec: '{"main":-101}'`),
			refused: []string{"oom-score-adj -101, at least -100 is allowed here"},
		},
		{name: "as far for one container", in: "limited", meta: annotations(`koordinator.sh/oom-score-adj-spec: '{"main":-100}'`)},
		{name: "a profile's knob", in: "limited", meta: labels("case: knobs"), refused: []string{"memoryQOS is not allowed here"}},
		{name: "the profile's knob where nothing is said", meta: labels("case: knobs"), want: "metadata: {annotations: {koordinator.sh/memoryQOS: '{}'}}"},
		{
			name: "words that mean nothing allow nothing", in: "unread", meta: annotations("koordinator.sh/cpuBurst: '{}'"),
			refused: []string{"cpuBurst is not allowed here"},
		},
	}
}
