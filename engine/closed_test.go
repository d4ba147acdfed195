// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Work that gives no answer is refused where Closed says so, whatever the reason, and only there.
func TestGuardClosed(t *testing.T) {
	t.Parallel()
	no := errors.New("not without proof")
	replied := make(chan struct{})
	for name, tc := range map[string]struct {
		work   func() (int, error)
		closed func(why string) error
		want   error
		why    string
	}{
		"late":     {func() (int, error) { <-replied; return 1, nil }, func(string) error { return no }, no, "late"},
		"panics":   {func() (int, error) { panic("ouch") }, func(string) error { return no }, no, "panicked"},
		"fails":    {func() (int, error) { return 1, errors.New("disk full") }, func(string) error { return no }, no, "disk full"},
		"let go":   {func() (int, error) { panic("ouch") }, func(string) error { return nil }, nil, "panicked"},
		"none":     {func() (int, error) { panic("ouch") }, nil, nil, ""},
		"careless": {func() (int, error) { panic("ouch") }, func(string) error { panic("ouch again") }, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 0)
			if name == "late" {
				r.SetDeadline(20 * time.Millisecond)
				t.Cleanup(func() { close(replied) })
			}
			call := engine.Call[int]{
				Event: metrics.EventStartContainer, Subject: name, Work: func(context.Context) (int, error) { return tc.work() },
			}
			if tc.closed != nil {
				call.Closed = func(why string) error {
					if !strings.Contains(why, tc.why) {
						t.Errorf("asked because of %q", why)
					}
					return tc.closed(why)
				}
			}
			out, err := engine.Guard(r.Engine, call)
			if out != 0 || !errors.Is(err, tc.want) {
				t.Errorf("%d, %v", out, err)
			}
			if n := r.Status().Counters["failOpen"]; (n == 0) != (tc.want != nil) {
				t.Errorf("%d requests went on without an answer", n)
			}
			said := "went on"
			if tc.want != nil {
				said = "refused"
			}
			enginetest.Eventually(t, "record", func() bool {
				for _, rec := range r.book.All() {
					if rec.Via == journal.ViaProblem && rec.Target.Name == name && strings.Contains(rec.Reason, said) {
						return true
					}
				}
				return false
			})
		})
	}
}

// moody is a kernel whose proof panics, or does not come to an end before the test does.
type moody struct {
	engine.Kernel
	panics atomic.Bool
	hang   atomic.Pointer[chan struct{}]
}

// Verify implements engine.Kernel.
func (k *moody) Verify(p plan.Plan) []apply.Mismatch {
	if k.panics.Load() {
		panic("kernel went away")
	}
	if c := k.hang.Load(); c != nil {
		<-*c
	}
	return k.Kernel.Verify(p)
}

func alone(with string) map[string]string { return map[string]string{protocol.KeyOptOut: with} }

// A start that was late or panicked has proved nothing: it is refused for a pod that demands proof, by its annotation or by the
// node's configuration as far as that bears on it. Every other pod starts.
func TestUnprovenStart(t *testing.T) {
	t.Parallel()
	required := map[string]string{protocol.AnnotationRequired: "cpu-burst"}
	for name, tc := range map[string]struct {
		annotations map[string]string
		failClosed  []string
		forgotten   bool // the creation passed without us
		beside      bool
		want        bool
	}{
		"demands nothing":                      {},
		"requires":                             {annotations: required, want: true},
		"requires, not known":                  {annotations: required, forgotten: true, want: true},
		"requires, somebody else has proved":   {annotations: required, beside: true},
		"the node":                             {failClosed: []string{"cpu-burst"}, want: true},
		"the node, not known":                  {failClosed: []string{"cpu-burst"}, forgotten: true, want: true},
		"the node, of what the pod has not":    {failClosed: []string{"oom-score"}},
		"the node, and the pod is left alone":  {failClosed: []string{"cpu-burst"}, annotations: alone("true")},
		"the node, left alone and not known":   {failClosed: []string{"cpu-burst"}, annotations: alone("true"), forgotten: true},
		"the node, left alone for the feature": {failClosed: []string{"cpu-burst"}, annotations: alone("cpu-burst")},
	} {
		for _, how := range []string{"late", "panicking"} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				k := &moody{}
				r := newRig(t, 0, func(o *engine.Options) {
					k.Kernel, o.Kernel = o.Kernel, k
					o.Config.FailClosed = tc.failClosed
					m := enginetest.New(t, "6.12")
					spec, err := strategy.Parse([]byte(burst))
					must(t, err)
					o.Views = engine.NewViews(o.Config, m.Static(t, plan.CPUBurst, plan.CPUQuota, plan.CPUPeriod), &spec, "test")
					if tc.beside {
						o.Beside = func() bool { return true }
					}
				})
				sb, c := r.pod(t, tc.annotations), container()
				const dir = "/kubepods/burstable/podu/c1"
				r.tree.Mkdir(t, dir)
				r.tree.Set(t, dir, "cpu.max", "200000 100000")
				c.ID, c.Cgroup = "c1", dir
				if !tc.forgotten {
					must(t, r.Create(t.Context(), sb, c, func(_ *node.View, spec plan.Plan) plan.Plan { return spec }))
				}
				if how == "late" {
					replied := make(chan struct{})
					t.Cleanup(func() { close(replied) })
					k.hang.Store(&replied)
					r.SetDeadline(20 * time.Millisecond)
				} else {
					k.panics.Store(true)
				}
				arrival := engine.Arrival{ID: "c1", Read: func(...*protocol.Applied) *workload.Container { return c }}
				err := r.Proved(metrics.EventStartContainer, "default/web/app", sb, "c1", func(ctx context.Context) error {
					return r.Start(ctx, sb, arrival, 0, "")
				})
				switch {
				case !tc.want && err != nil:
					t.Errorf("stopped: %v", err)
				case tc.want && (err == nil || !strings.Contains(err.Error(), "cpu-burst could not be proved: decision")):
					t.Errorf("error = %v", err)
				}
			})
		}
	}
}

// limited is a pod with a quota, so that it has a burst of its own, and its container.
func limited(t *testing.T, r *rig, annotations map[string]string) (engine.Sandbox, engine.Arrival) {
	sb := r.pod(t, annotations)
	pod := *sb.Read()
	pod.Base = workload.Resources{Quota: unit.Some(200000), Period: unit.Some(100000)}
	sb.Read = func() *workload.Pod { return &pod }
	r.tree.Set(t, pod.Cgroup, "cpu.max", "200000 100000")
	const dir = "/kubepods/burstable/podu/c1"
	r.tree.Mkdir(t, dir)
	r.tree.Set(t, dir, "cpu.max", "200000 100000")
	c := container()
	c.ID, c.Cgroup = "c1", dir
	return sb, engine.Arrival{ID: "c1", Read: func(...*protocol.Applied) *workload.Container { return c }}
}

// What stands on the pod's cgroup is part of the proof: a hand's change is put right, and a value that the kernel refuses stops the
// pod that requires it, when it is run or when a container of it is started. Others start.
func TestPodIsProved(t *testing.T) {
	t.Parallel()
	required := map[string]string{protocol.AnnotationRequired: "cpu-burst"}
	const pod = "/kubepods/burstable/podu"
	for name, tc := range map[string]struct {
		annotations map[string]string
		before      func(*rig) // before the pod is run
		after       func(*rig) // before the container is started
		run, start  string     // part of the refusal
	}{
		"stands":                 {annotations: required},
		"refused at once":        {annotations: required, before: refusing, run: "cpu.burst of pod default/web"},
		"refused later":          {annotations: required, after: refusing, start: "cpu.burst of pod default/web"},
		"a hand":                 {annotations: required, after: func(r *rig) { r.tree.Set(t, pod, "cpu.max.burst", "7") }},
		"refused, not required":  {before: refusing},
		"refused, another named": {annotations: map[string]string{protocol.AnnotationRequired: "oom-score"}, before: refusing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 0)
			sb, arrival := limited(t, r, tc.annotations)
			if tc.before != nil {
				tc.before(r)
			}
			says(t, "run", r.RunPod(t.Context(), sb), tc.run)
			if tc.run != "" {
				return
			}
			if tc.after != nil {
				tc.after(r)
			}
			must(t, r.Create(t.Context(), sb, arrival.Read(), func(_ *node.View, spec plan.Plan) plan.Plan { return spec }))
			says(t, "start", r.Start(t.Context(), sb, arrival, 0, ""), tc.start)
			if tc.annotations != nil && tc.start == "" && tc.before == nil {
				if got := r.tree.Get(t, pod, "cpu.max.burst"); got != "200000" {
					t.Errorf("the pod's burst is %s when the container starts", got)
				}
			}
		})
	}
}

// refusing leaves the pod a quota below the burst that it is to get. The engine may put the burst back in between.
func refusing(r *rig) {
	var err error
	for range 1000 {
		write := func(file, text string) error {
			return r.tree.Write(r.tree.Path("/kubepods/burstable/podu", file), text, false)
		}
		if err = errors.Join(write("cpu.max.burst", "0"), write("cpu.max", "1000 100000")); err == nil {
			return
		}
	}
	panic(err)
}

func says(t *testing.T, what string, err error, part string) {
	t.Helper()
	switch {
	case part == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case part != "" && (err == nil || !strings.Contains(err.Error(), part) || !strings.Contains(err.Error(), "koord-rt: required guarantee")):
		t.Errorf("%s: %v; want an error that says %q", what, err, part)
	}
}

// A feature that the node has chosen and does not have stops the pods that it would do something for, and no others.
func TestNodeWithoutFeature(t *testing.T) {
	t.Parallel()
	const text = "resourceQOSStrategy: {lsClass: {memoryQOS: {enable: true, minLimitPercent: 50, throttlingPercent: 80}}}\n"
	for name, tc := range map[string]struct {
		class       string
		annotations map[string]string
		want        bool
	}{
		"a class that has it":     {class: "LS", want: true},
		"a class that has it not": {class: "BE"},
		"left alone":              {class: "LS", annotations: map[string]string{protocol.KeyOptOut: "memory-qos"}},
		"required":                {class: "BE", annotations: map[string]string{protocol.AnnotationRequired: "memory-qos"}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := enginetest.New(t, "6.12", "/kubepods/burstable/podu")
			cfg := config.Default().Node
			cfg.FailClosed = []string{"memory-qos"}
			g := engine.New(m.Options(t, cfg, paper(0), text, plan.CPUQuota))
			enginetest.Run(t, g)
			ask, _ := protocol.ParsePod(map[string]string{protocol.LabelQoSClass: tc.class}, tc.annotations)
			pod := &workload.Pod{
				ID: "s", UID: "u", Namespace: "default", Name: "web", KubeQoS: protocol.KubeBurstable, Cgroup: "/kubepods/burstable/podu",
				QoSCgroup: "/kubepods/burstable", Ask: ask,
			}
			sb := engine.Sandbox{ID: "s", Read: func() *workload.Pod { return pod }}
			c := container()
			c.Base.MemoryLimit = unit.Some(1 << 30)
			err := g.RunPod(t.Context(), sb)
			if err == nil {
				err = g.Create(t.Context(), sb, c, func(_ *node.View, spec plan.Plan) plan.Plan { return spec })
			}
			switch {
			case !tc.want && err != nil:
				t.Errorf("stopped: %v", err)
			case tc.want && (err == nil || !strings.Contains(err.Error(), "memory-qos is unsupported here")):
				t.Errorf("error = %v", err)
			}
		})
	}
}

// What only the specification can carry and does not is no guarantee: nothing can be written for it later.
func TestUnsetIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0, func(o *engine.Options) {
		o.Join = func(ours, _ plan.Plan) plan.Plan {
			return append(ours[:len(ours):len(ours)], plan.Setting{
				Target: plan.Target{Level: plan.LevelContainer}, Knob: plan.Device, Key: "/dev/gpu", Value: plan.Text("c 1:1 rwm"),
				Owner: protocol.FeatureBurst,
			})
		}
	})
	sb, arrival := limited(t, r, map[string]string{protocol.AnnotationRequired: "cpu-burst"})
	c := arrival.Read()
	c.Foreign = plan.Plan{{Knob: plan.Device}}
	must(t, r.Create(t.Context(), sb, c, func(_ *node.View, spec plan.Plan) plan.Plan { return spec[:len(spec)-1] }))
	says(t, "carried", r.Start(t.Context(), sb, arrival, 0, ""), "")
	r.CreatedLate("c1")
	says(t, "late", r.Start(t.Context(), sb, arrival, 0, ""), "/dev/gpu")
}
