// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package node

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/cluster/webhook/answer"
)

func answers(t testing.TB) *answer.Answers {
	t.Helper()
	a, err := answer.New(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// stored is a node of 16 CPUs and 64Gi in an API server that calls us, or does not.
type stored struct {
	t   *testing.T
	now *corev1.Node
}

func newStored(t *testing.T) *stored {
	n := &corev1.Node{}
	n.Labels = map[string]string{"a": "b"}
	n.Status.Capacity = list("16", "64Gi")
	n.Status.Allocatable = list("10", "40Gi")
	n.Status.Images = []corev1.ContainerImage{{Names: []string{"x"}, SizeBytes: 1 << 60}}
	return &stored{t: t, now: n}
}

func list(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory), "ephemeral-storage": resource.MustParse("1Ti")}
}

// status writes nodes/status; without a webhook as it comes.
func (s *stored) status(webhook bool, change func(*corev1.Node)) []string {
	s.t.Helper()
	next := s.now.DeepCopy()
	change(next)
	raw := func(n *corev1.Node) []byte {
		text, err := json.Marshal(n)
		if err != nil {
			s.t.Fatal(err)
		}
		return text
	}
	var warnings []string
	text := raw(next)
	if webhook {
		got := mutator{answers(s.t)}.Handle(s.t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Operation: admissionv1.Update, SubResource: "status",
			Object: runtime.RawExtension{Raw: text}, OldObject: runtime.RawExtension{Raw: raw(s.now)},
		}})
		if !got.Allowed {
			s.t.Fatalf("refused: %+v", got.Result)
		}
		warnings = got.Warnings
		if got.Patch != nil {
			p, err := jsonpatch.DecodePatch(got.Patch)
			if err != nil {
				s.t.Fatal(err)
			}
			if text, err = p.Apply(text); err != nil {
				s.t.Fatalf("%s: %v", got.Patch, err)
			}
		}
	}
	s.now = &corev1.Node{}
	if err := json.Unmarshal(text, s.now); err != nil {
		s.t.Fatal(err)
	}
	return warnings
}

func kubelet(cpu, memory string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Status.Allocatable = list(cpu, memory) }
}

func nothing(*corev1.Node) {}

func ratio(text string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		if text == "" {
			delete(n.Annotations, protocol.AnnotationAmplificationRatio)
			return
		}
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[protocol.AnnotationAmplificationRatio] = text
	}
}

// is checks what stands in the API server: "15 40Gi raw 10 40Gi by {…}".
func (s *stored) is(cpu, memory, raw, by string) {
	s.t.Helper()
	for name, want := range map[corev1.ResourceName]string{"cpu": cpu, "memory": memory, "ephemeral-storage": "1Ti"} {
		if q := s.now.Status.Allocatable[name]; q.Cmp(resource.MustParse(want)) != 0 {
			s.t.Errorf("allocatable %s is %s, want %s", name, q.String(), want)
		}
	}
	if got := s.now.Annotations[protocol.AnnotationRawAllocatable]; got != raw {
		s.t.Errorf("raw-allocatable %s, want %s", got, raw)
	}
	if got := s.now.Annotations[protocol.AnnotationAmplifiedBy]; got != by {
		s.t.Errorf("amplified-by %s, want %s", got, by)
	}
	if s.now.Labels["a"] != "b" || len(s.now.Status.Images) != 1 || s.now.Status.Images[0].SizeBytes != 1<<60 {
		s.t.Errorf("something else was changed: %+v", s.now)
	}
}

// TestAmplify is the life of a node: what the kubelet says × the ratio, whatever comes between.
func TestAmplify(t *testing.T) {
	t.Parallel()
	const raw10, by15, by2 = `{"cpu":"10","memory":"40Gi"}`, `{"cpu":1.50}`, `{"cpu":2.00}`
	type life = func(*stored)
	for name, run := range map[string]life{
		"no ratio: nothing is written": func(s *stored) {
			s.status(true, kubelet("9", "40Gi"))
			s.is("9", "40Gi", "", "")
			if s.now.Annotations != nil {
				s.t.Error(s.now.Annotations)
			}
		},
		"a ratio": func(s *stored) {
			s.status(true, ratio(`{"cpu":1.5}`))
			s.is("15", "40Gi", raw10, by15)
		},
		"both resources, rounded down": func(s *stored) {
			s.now.Status.Allocatable = list("9333m", "1001")
			s.status(true, ratio(`{"cpu":1.5,"memory":1.05,"ephemeral-storage":2}`))
			s.is("13999m", "1051", `{"cpu":"9333m","memory":"1001"}`, `{"cpu":1.50,"memory":1.05}`)
		},
		"the kubelet says the same again and again": func(s *stored) {
			s.status(true, ratio(`{"cpu":1.5}`))
			for range 3 {
				s.status(true, kubelet("10", "40Gi"))
				s.is("15", "40Gi", raw10, by15)
			}
		},
		"somebody else writes the status": func(s *stored) {
			s.status(true, ratio(`{"cpu":1.5}`))
			s.status(true, func(n *corev1.Node) { n.Status.Phase = "x" })
			s.is("15", "40Gi", raw10, by15)
		},
		"the kubelet says less": func(s *stored) {
			s.status(true, ratio(`{"cpu":1.5}`))
			s.status(true, kubelet("8", "40Gi"))
			s.is("12", "40Gi", `{"cpu":"8","memory":"40Gi"}`, by15)
		},
		"the kubelet says more memory only": func(s *stored) {
			s.status(true, ratio(`{"cpu":1.5}`))
			s.status(true, func(n *corev1.Node) { n.Status.Allocatable["memory"] = resource.MustParse("41Gi") })
			s.is("15", "41Gi", `{"cpu":"10","memory":"41Gi"}`, by15)
		},
		"another ratio, in the same write as the status": func(s *stored) {
			s.status(true, ratio(`{"cpu":1.5}`))
			s.status(true, ratio(`{"cpu":2}`))
			s.is("20", "40Gi", raw10, by2)
		},
		"another ratio, written on the Node before": func(s *stored) {
			s.status(true, ratio(`{"cpu":1.5}`))
			ratio(`{"cpu":2}`)(s.now) // nodes, not nodes/status: nobody asks us
			s.status(true, nothing)
			s.is("20", "40Gi", raw10, by2)
		},
		"the ratio goes": func(s *stored) {
			s.status(true, ratio(`{"cpu":1.5}`))
			s.status(true, ratio(""))
			s.is("10", "40Gi", "", "")
		},
		"the ratio becomes one": func(s *stored) {
			s.status(true, ratio(`{"cpu":1.5}`))
			s.status(true, ratio(`{"cpu":1}`))
			s.is("10", "40Gi", "", "")
		},
		"the ratio means nothing": func(s *stored) {
			s.status(true, ratio(`{"cpu":1.5}`))
			if w := s.status(true, ratio(`{"cpu":"much"}`)); len(w) != 1 || !strings.Contains(w[0], "as large as its kubelet says") {
				s.t.Error(w)
			}
			s.is("10", "40Gi", "", "")
		},
		"we are away, and the kubelet says the same": func(s *stored) {
			s.status(true, ratio(`{"cpu":1.5}`))
			s.status(false, kubelet("10", "40Gi"))
			s.is("10", "40Gi", raw10, by15)
			s.status(true, kubelet("10", "40Gi"))
			s.is("15", "40Gi", raw10, by15)
		},
		"we are away, and the kubelet says something else": func(s *stored) {
			s.status(true, ratio(`{"cpu":1.5}`))
			s.status(false, kubelet("8", "40Gi"))
			s.status(true, kubelet("8", "40Gi"))
			s.is("12", "40Gi", `{"cpu":"8","memory":"40Gi"}`, by15)
		},
		"Koordinator's manager has amplified": func(s *stored) {
			s.now.Annotations = map[string]string{
				protocol.AnnotationAmplificationRatio: `{"cpu":1.5}`, protocol.AnnotationRawAllocatable: `{"cpu":"10","memory":"40Gi"}`,
			}
			s.now.Status.Allocatable = list("15", "40Gi")
			s.status(true, nothing)
			s.is("15", "40Gi", raw10, by15)
		},
		"the record is gone": func(s *stored) {
			s.now.Status.Capacity["cpu"] = resource.MustParse("12")
			s.status(true, ratio(`{"cpu":1.5}`))
			delete(s.now.Annotations, protocol.AnnotationRawAllocatable)
			if w := s.status(true, nothing); len(w) != 1 || !strings.Contains(w[0], "more than the capacity") {
				s.t.Error(w)
			}
			s.is("15", "40Gi", "", "")
			s.status(true, kubelet("10", "40Gi"))
			s.is("15", "40Gi", raw10, by15)
		},
		"the record was forged": func(s *stored) {
			s.status(true, ratio(`{"cpu":1.5}`))
			s.now.Annotations[protocol.AnnotationRawAllocatable] = `{"cpu":"1000"}`
			s.now.Status.Capacity["cpu"] = resource.MustParse("12")
			s.status(true, nothing)
			s.is("15", "40Gi", "", "")
		},
		"a node without allocatable": func(s *stored) {
			s.status(true, ratio(`{"cpu":1.5}`))
			before := maps.Clone(s.now.Annotations)
			s.status(true, func(n *corev1.Node) { n.Status.Allocatable = nil })
			if s.now.Status.Allocatable != nil || before[protocol.AnnotationAmplificationRatio] == "" {
				s.t.Error(s.now.Status.Allocatable)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(newStored(t))
		})
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	type m = map[string]string
	const key, raw = protocol.AnnotationAmplificationRatio, protocol.AnnotationRawAllocatable
	for name, c := range map[string]struct {
		now, was m
		want     []string
	}{
		"none":                    {},
		"right":                   {m{key: `{"cpu":1.5}`}, nil, nil},
		"below one":               {m{key: `{"cpu":0.5}`}, nil, []string{`ratio 0.5 of "cpu"`, "{\"cpu\":1.5}"}},
		"text":                    {m{key: `2`}, nil, []string{"JSON object"}},
		"wrong before, left":      {m{key: `2`, "a": "b"}, m{key: `2`}, nil},
		"wrong before, otherwise": {m{key: `3`}, m{key: `2`}, []string{"JSON object"}},
		"taken away":              {m{}, m{key: `2`}, nil},
		"raw":                     {m{raw: `{"cpu":"10"}`}, nil, nil},
		"raw that is no list":     {m{raw: `{"cpu":"ten"}`}, nil, []string{"leave it out"}},
		"raw that takes minutes":  {m{raw: `{"cpu":"1e-99999999"}`}, nil, []string{"leave it out"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := func(annotations m) runtime.RawExtension {
				text, err := json.Marshal(map[string]any{"metadata": m2{annotations}})
				if err != nil {
					t.Fatal(err)
				}
				return runtime.RawExtension{Raw: text}
			}
			got := validator{answers(t)}.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Update, Object: node(c.now), OldObject: node(c.was),
			}})
			if got.Allowed != (c.want == nil) {
				t.Errorf("allowed %t: %s", got.Allowed, got.Result.Message)
			}
			// Who writes a ratio by hand is told that it will not stay.
			if told := got.Allowed && c.now[key] != "" && c.now[key] != c.was[key]; told != (len(got.Warnings) == 1) {
				t.Errorf("warnings %q", got.Warnings)
			}
			for _, part := range c.want {
				if !strings.Contains(got.Result.Message, part) {
					t.Errorf("%q does not say %q", got.Result.Message, part)
				}
			}
		})
	}
}

type m2 struct {
	Annotations map[string]string `json:"annotations,omitempty"`
}

// TestBadNode: what cannot be read passes with a warning.
func TestBadNode(t *testing.T) {
	t.Parallel()
	bad := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Update, SubResource: "status", Object: runtime.RawExtension{Raw: []byte(`{"status":3}`)},
	}}
	for _, h := range []admission.Handler{mutator{answers(t)}, validator{answers(t)}} {
		if got := h.Handle(t.Context(), bad); !got.Allowed || len(got.Warnings) != 1 || got.Patch != nil {
			t.Errorf("%+v", got)
		}
	}
}

// FuzzAmplify: whatever stands in the annotations, no value becomes negative or more than a hundred times what the kubelet says, and
// deciding again about the result changes nothing.
func FuzzAmplify(f *testing.F) {
	f.Add(`{"cpu":1.5}`, `{"cpu":"10"}`, `{"cpu":1.50}`, int64(10000), int64(10000))
	f.Add(`{"cpu":2}`, `{"cpu":"10"}`, `{"cpu":1.50}`, int64(15000), int64(15000))
	f.Add(`{"cpu":100}`, `{"cpu":"9E"}`, ``, int64(1<<62), int64(1))
	f.Fuzz(func(t *testing.T, wish, raw, by string, now, was int64) {
		if now < 0 || was < 0 {
			return
		}
		node := func(milli int64) *Node {
			return &Node{
				Annotations: map[string]string{
					protocol.AnnotationAmplificationRatio: wish, protocol.AnnotationRawAllocatable: raw, protocol.AnnotationAmplifiedBy: by,
				},
				Capacity:    corev1.ResourceList{"cpu": *resource.NewQuantity(16, resource.DecimalSI)},
				Allocatable: corev1.ResourceList{"cpu": *resource.NewMilliQuantity(milli, resource.DecimalSI)},
			}
		}
		n := node(now)
		out := Amplify(n, node(was))
		if q, ok := out.Allocatable["cpu"]; ok && (q.Sign() < 0 || q.CmpInt64(16*protocol.MaxAmplification) > 0) {
			t.Fatalf("%s becomes %s", n.Allocatable.Cpu(), q.String())
		}
		next := node(now)
		for key, value := range out.Annotations {
			if value == "" {
				delete(next.Annotations, key)
			} else {
				next.Annotations[key] = value
			}
		}
		maps.Copy(next.Allocatable, out.Allocatable)
		if again := Amplify(next, next); len(again.Allocatable) > 0 || len(again.Annotations) > 0 {
			t.Fatalf("after %v, %v: %v, %v", out.Allocatable, out.Annotations, again.Allocatable, slices.Sorted(maps.Keys(again.Annotations)))
		}
	})
}
