// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package profile_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/policy/profile"
)

func asks(name string, requests, limits profile.Resources) profile.Container {
	return profile.Container{Name: name, Requirements: profile.Requirements{Requests: requests, Limits: limits}}
}

// lists are the requests and limits of a pod's containers by name, pod-level ones as "*".
func lists(p *profile.Pod) map[string][2]profile.Resources {
	out := map[string][2]profile.Resources{}
	put := func(name string, r profile.Requirements) {
		if len(r.Requests)+len(r.Limits) > 0 {
			out[name] = [2]profile.Resources{r.Requests, r.Limits}
		}
	}
	for _, c := range append(append([]profile.Container{}, p.Init...), p.Main...) {
		put(c.Name, c.Requirements)
	}
	put("*", p.Whole)
	return out
}

func TestTranslate(t *testing.T) {
	t.Parallel()
	type r = profile.Resources
	batch, mid, free, prod := int32(5500), int32(7500), int32(3500), int32(9500)
	for name, c := range map[string]struct {
		pod  profile.Pod
		want map[string][2]r
		err  string
	}{
		"batch: init containers and sidecars too": {
			pod: profile.Pod{
				Priority: &batch, Overhead: r{"cpu": "250m"},
				Init: []profile.Container{
					asks("init", r{"cpu": "0.5"}, nil),
					{Name: "side", Sidecar: true, Requirements: profile.Requirements{Requests: r{"cpu": "1500m", "memory": "128Mi"}}},
				},
				Main: []profile.Container{asks("a", r{"cpu": "2", "memory": "3456Mi", "nvidia.com/gpu": "1"}, r{"cpu": "4"}), asks("b", nil, nil)},
			},
			want: map[string][2]r{
				"init": {r{"kubernetes.io/batch-cpu": "500"}, nil},
				"side": {r{"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "128Mi"}, nil},
				"a": {
					r{"kubernetes.io/batch-cpu": "2000", "kubernetes.io/batch-memory": "3456Mi", "nvidia.com/gpu": "1"},
					r{"kubernetes.io/batch-cpu": "4000"},
				},
			},
		},
		"mid": {
			pod:  profile.Pod{Priority: &mid, Main: []profile.Container{asks("a", r{"cpu": "1", "memory": "1Gi"}, nil)}},
			want: map[string][2]r{"a": {r{"kubernetes.io/mid-cpu": "1000", "kubernetes.io/mid-memory": "1Gi"}, nil}},
		},
		"free has no resources of its own": {
			pod:  profile.Pod{Priority: &free, Main: []profile.Container{asks("a", r{"cpu": "1"}, nil)}},
			want: map[string][2]r{"a": {r{"cpu": "1"}, nil}},
		},
		"prod": {
			pod:  profile.Pod{Priority: &prod, Main: []profile.Container{asks("a", r{"cpu": "1"}, nil)}},
			want: map[string][2]r{"a": {r{"cpu": "1"}, nil}},
		},
		"no class": {
			pod:  profile.Pod{Main: []profile.Container{asks("a", r{"cpu": "1"}, nil)}},
			want: map[string][2]r{"a": {r{"cpu": "1"}, nil}},
		},
		"no class, BE is batch": {
			pod: profile.Pod{
				Labels: map[string]string{protocol.LabelQoSClass: "BE"}, Main: []profile.Container{asks("a", r{"cpu": "1"}, nil)},
			},
			want: map[string][2]r{"a": {r{"kubernetes.io/batch-cpu": "1000"}, nil}},
		},
		"the label wins over the priority": {
			pod: profile.Pod{
				Priority: &prod, Labels: map[string]string{protocol.LabelPriorityClass: "koord-mid"}, Main: []profile.Container{asks("a", r{"cpu": "1"}, nil)},
			},
			want: map[string][2]r{"a": {r{"kubernetes.io/mid-cpu": "1000"}, nil}},
		},
		"a limit alone is a request": {
			pod: profile.Pod{Priority: &batch, Main: []profile.Container{asks("a", nil, r{"cpu": "1", "memory": "4Gi"})}},
			want: map[string][2]r{"a": {
				r{"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "4Gi"},
				r{"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "4Gi"},
			}},
		},
		"already batch": {
			pod: profile.Pod{Priority: &batch, Main: []profile.Container{asks("a", nil, r{"kubernetes.io/batch-cpu": "700"})}},
			want: map[string][2]r{"a": {
				r{"kubernetes.io/batch-cpu": "700"}, r{"kubernetes.io/batch-cpu": "700"},
			}},
		},
		"fractions of a milli-core round up": {
			pod:  profile.Pod{Priority: &batch, Main: []profile.Container{asks("a", r{"cpu": "100100u"}, nil)}},
			want: map[string][2]r{"a": {r{"kubernetes.io/batch-cpu": "101"}, nil}},
		},
		"pod-level, one container": {
			pod: profile.Pod{
				Priority: &batch, Whole: profile.Requirements{Requests: r{"cpu": "2", "hugepages-2Mi": "4Mi"}, Limits: r{"cpu": "3", "memory": "1Gi"}},
				Main: []profile.Container{asks("a", r{"cpu": "1", "memory": "512Mi"}, r{"memory": "2Gi"})},
			},
			want: map[string][2]r{
				"a": {
					r{"kubernetes.io/batch-cpu": "2000", "kubernetes.io/batch-memory": "512Mi"},
					r{"kubernetes.io/batch-cpu": "3000", "kubernetes.io/batch-memory": "1Gi"},
				},
				"*": {r{"hugepages-2Mi": "4Mi"}, r{}},
			},
		},
		"pod-level, the containers have it all": {
			pod: profile.Pod{
				Priority: &batch, Whole: profile.Requirements{Requests: r{"cpu": "3"}, Limits: r{"cpu": "5"}},
				Main: []profile.Container{asks("a", r{"cpu": "1"}, r{"cpu": "2"}), asks("b", r{"cpu": "2"}, r{"cpu": "3"})},
			},
			want: map[string][2]r{
				"a": {r{"kubernetes.io/batch-cpu": "1000"}, r{"kubernetes.io/batch-cpu": "2000"}},
				"b": {r{"kubernetes.io/batch-cpu": "2000"}, r{"kubernetes.io/batch-cpu": "3000"}},
			},
		},
		"pod-level, containers share": {
			pod: profile.Pod{
				Priority: &batch, Whole: profile.Requirements{Requests: r{"cpu": "3"}},
				Main: []profile.Container{asks("a", r{"cpu": "1"}, nil), asks("b", r{"memory": "1Gi"}, nil)},
			},
			want: map[string][2]r{"a": {r{"cpu": "1"}, nil}, "b": {r{"memory": "1Gi"}, nil}, "*": {r{"cpu": "3"}, nil}},
			err:  "pod-level cpu",
		},
		"pod-level limit below the containers'": {
			pod: profile.Pod{
				Priority: &batch, Whole: profile.Requirements{Limits: r{"memory": "3Gi"}},
				Main: []profile.Container{asks("a", nil, r{"memory": "2Gi"}), asks("b", nil, r{"memory": "2Gi"})},
			},
			want: map[string][2]r{"a": {nil, r{"memory": "2Gi"}}, "b": {nil, r{"memory": "2Gi"}}, "*": {nil, r{"memory": "3Gi"}}},
			err:  "pod-level memory",
		},
		"pod-level limit, a container without one": {
			pod: profile.Pod{
				Priority: &batch, Whole: profile.Requirements{Limits: r{"memory": "3Gi"}},
				Main: []profile.Container{asks("a", nil, r{"memory": "2Gi"}), asks("b", r{"cpu": "1"}, nil)},
			},
			want: map[string][2]r{"a": {nil, r{"memory": "2Gi"}}, "b": {r{"cpu": "1"}, nil}, "*": {nil, r{"memory": "3Gi"}}},
			err:  "pod-level memory",
		},
		"an amount that is none: nothing is touched": {
			pod: profile.Pod{
				Priority: &batch, Whole: profile.Requirements{Requests: r{"memory": "1Gi"}},
				Main: []profile.Container{asks("a", r{"cpu": "-1"}, nil)},
			},
			want: map[string][2]r{"a": {r{"cpu": "-1"}, nil}, "*": {r{"memory": "1Gi"}, nil}},
			err:  "cpu",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := c.pod
			over := p.Overhead["cpu"]
			err := profile.Translate(&p)
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			if c.err != "" && p.Resources {
				t.Error("changed in spite of the error")
			}
			if diff := cmp.Diff(c.want, lists(&p)); diff != "" {
				t.Error(diff)
			}
			if p.Overhead["cpu"] != over {
				t.Errorf("overhead cpu %q: the API server refuses any but the RuntimeClass'", p.Overhead["cpu"])
			}
			again := p
			again.Resources = false
			for i := range again.Main {
				again.Main[i].Changed = false
			}
			for i := range again.Init {
				again.Init[i].Changed = false
			}
			if err := profile.Translate(&again); err == nil && again.Resources {
				t.Error("translating twice changes it again")
			}
		})
	}
}

func TestExtended(t *testing.T) {
	t.Parallel()
	type r = profile.Resources
	p := profile.Pod{
		Init: []profile.Container{asks("init", r{"kubernetes.io/batch-cpu": "500"}, nil), asks("plain", r{"cpu": "1"}, nil)},
		Main: []profile.Container{
			// upstream's example of extended_resource_spec_test.go
			asks("test-container-a", r{"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "4Gi", "unknown-resource": "1"},
				r{"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "4Gi", "unknown-resource": "1"}),
			asks("m", r{"kubernetes.io/mid-cpu": "250", "kubernetes.io/mid-memory": "1Mi"}, nil),
		},
		Annotations: map[string]string{protocol.AnnotationExtendedResource: `{"containers":{"test-container-a":{"limits":{"kubernetes.io/batch-cpu":"900000"}}}}`},
	}
	const want = `{"containers":{"init":{"requests":{"kubernetes.io/batch-cpu":"500"}},` +
		`"m":{"requests":{"kubernetes.io/mid-cpu":"250","kubernetes.io/mid-memory":"1048576"}},` +
		`"test-container-a":{"limits":{"kubernetes.io/batch-cpu":"1000","kubernetes.io/batch-memory":"4294967296"},` +
		`"requests":{"kubernetes.io/batch-cpu":"1000","kubernetes.io/batch-memory":"4294967296"}}}}`
	changed, err := profile.AnnotateExtended(&p)
	if got := p.Annotations[protocol.AnnotationExtendedResource]; err != nil || !changed || got != want {
		t.Errorf("changed %v, %v:\n got %s\nwant %s", changed, err, got, want)
	}
	// Upstream's text of the same meaning stays.
	upstream := strings.ReplaceAll(want, "4294967296", "4Gi")
	p.Annotate(protocol.AnnotationExtendedResource, upstream)
	if changed, err := profile.AnnotateExtended(&p); err != nil || changed || p.Annotations[protocol.AnnotationExtendedResource] != upstream {
		t.Errorf("the same in other words: changed %v, %v", changed, err)
	}
	// One that stands for nothing would give a pod more than it asks for.
	plain := profile.Pod{Main: []profile.Container{asks("a", r{"cpu": "1"}, nil)}, Annotations: map[string]string{protocol.AnnotationExtendedResource: want}}
	if changed, err := profile.AnnotateExtended(&plain); err != nil || !changed || len(plain.Annotations) != 0 {
		t.Errorf("made up: changed %v, %v, %v", changed, err, plain.Annotations)
	}
	if problems := profile.CheckExtended(&p); problems != nil {
		t.Errorf("refused: %v", problems)
	}
	p.Main[0].Limits["kubernetes.io/batch-cpu"] = "2000"
	if problems := profile.CheckExtended(&p); len(problems) != 1 {
		t.Errorf("a limit that differs from the annotation: %v", problems)
	}
}

// TestDevices repeats upstream's device_resource_spec_test.go.
func TestDevices(t *testing.T) {
	t.Parallel()
	type r = profile.Resources
	const core, memory, ratio, shared, gpu = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory", "koordinator.sh/gpu-memory-ratio",
		"koordinator.sh/gpu.shared", "koordinator.sh/gpu"
	for name, c := range map[string]struct{ have, want r }{
		"small share":           {r{core: "100", memory: "4000", ratio: "50"}, r{core: "100", memory: "4000", ratio: "50", shared: "1"}},
		"multiple of 100":       {r{core: "100", memory: "8000", ratio: "200"}, r{core: "100", memory: "8000", ratio: "200", shared: "2"}},
		"gpu":                   {r{gpu: "200"}, r{core: "200", ratio: "200", shared: "2"}},
		"gpu, a part":           {r{gpu: "50"}, r{core: "50", ratio: "50", shared: "1"}},
		"core decides alone":    {r{core: "300"}, r{core: "300", shared: "3"}},
		"150 is no whole":       {r{core: "150"}, r{core: "150", shared: "1"}},
		"share given":           {r{core: "100", ratio: "100", shared: "4"}, r{core: "100", ratio: "100", shared: "4"}},
		"somebody else's":       {r{"nvidia.com/gpu": "1", "cpu": "1"}, r{"nvidia.com/gpu": "1", "cpu": "1"}},
		"memory alone is share": {r{memory: "1Gi"}, r{memory: "1Gi", shared: "1"}},
	} {
		limits := r{}
		for k, v := range c.have {
			limits[k] = v
		}
		p := profile.Pod{Main: []profile.Container{asks("a", c.have, limits)}}
		if err := profile.Devices(&p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, p.Main[0].Requests) + cmp.Diff(c.want, p.Main[0].Limits); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestCheckDevices(t *testing.T) {
	t.Parallel()
	type r = profile.Resources
	for name, c := range map[string]struct {
		requests r
		want     string
	}{
		"nothing":               {r{"cpu": "1"}, ""},
		"gpu":                   {r{"koordinator.sh/gpu": "200"}, ""},
		"gpu 0":                 {r{"koordinator.sh/gpu": "0"}, "want 1 to 100"},
		"gpu 150":               {r{"koordinator.sh/gpu": "150"}, "want 1 to 100"},
		"both forms":            {r{"koordinator.sh/gpu": "100", "koordinator.sh/gpu.shared": "1"}, "use one of them"},
		"shared":                {r{"koordinator.sh/gpu.shared": "2", "koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}, ""},
		"shared by none":        {r{"koordinator.sh/gpu.shared": "0", "koordinator.sh/gpu-memory": "1"}, "want at least 1"},
		"shared without memory": {r{"koordinator.sh/gpu.shared": "1", "koordinator.sh/gpu-core": "50"}, "asks for no GPU memory"},
		"memory twice":          {r{"koordinator.sh/gpu.shared": "1", "koordinator.sh/gpu-memory": "1", "koordinator.sh/gpu-memory-ratio": "5"}, "use one of them"},
		"core no multiple":      {r{"koordinator.sh/gpu.shared": "2", "koordinator.sh/gpu-core": "25", "koordinator.sh/gpu-memory": "1"}, "gpu-core is no multiple"},
		"ratio no multiple":     {r{"koordinator.sh/gpu.shared": "2", "koordinator.sh/gpu-memory-ratio": "25"}, "gpu-memory-ratio is no multiple"},
		"gpu 150 as it is written out": {
			r{"koordinator.sh/gpu.shared": "1", "koordinator.sh/gpu-core": "150", "koordinator.sh/gpu-memory-ratio": "150"},
			"gpu-core is 150 of 1 GPU: want at most 100 of each",
		},
		"more memory than there is":   {r{"koordinator.sh/gpu.shared": "2", "koordinator.sh/gpu-memory-ratio": "202"}, "gpu-memory-ratio is 202 of 2 GPU"},
		"Huawei has rules of its own": {r{"koordinator.sh/gpu.shared": "1", "huawei.com/npu-core": "10"}, ""},
	} {
		p := profile.Pod{Main: []profile.Container{asks("a", c.requests, nil)}}
		got := profile.CheckDevices(&p)
		if c.want == "" && got != nil || c.want != "" && (len(got) != 1 || !strings.Contains(got[0].String(), c.want)) {
			t.Errorf("%s: %v, want %q", name, got, c.want)
		}
	}
}

// TestCheckDevicesWrittenOut: the check comes after the short form has been written out, and must still know what could never be given.
func TestCheckDevicesWrittenOut(t *testing.T) {
	t.Parallel()
	for percent, fits := range map[strategy.Quantity]bool{"0": false, "1": true, "50": true, "100": true, "150": false, "200": true, "250": false} {
		p := profile.Pod{Main: []profile.Container{asks("a", profile.Resources{"koordinator.sh/gpu": percent}, nil)}}
		if err := profile.Devices(&p); err != nil {
			t.Fatal(err)
		}
		if got := profile.CheckDevices(&p); (got == nil) != fits {
			t.Errorf("%s: %v", percent, got)
		}
	}
}
