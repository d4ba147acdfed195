// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pods

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/koordlet/internal/amount"
	"github.com/koord-rt/koord-rt/koordlet/internal/jsonscan"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/unit"
)

// recorded reads a list of testdata.
func recorded(t testing.TB, file string) (pods []*Pod, problems []string) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	_, err = jsonscan.List(bytes.NewReader(data), MaxObject, maxPods, func(raw []byte, _ bool) error {
		entry := decoded(raw)
		problems = append(problems, entry.problems...)
		if entry.pod != nil {
			pods = append(pods, entry.pod)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pods, problems
}

func milli(n int64) unit.MilliCPU { return unit.MilliCPU(n) }

func at(s string) time.Time {
	t, err := time.Parse("15:04:05", s)
	if err != nil {
		return time.Time{}
	}
	return time.Date(2026, 1, 2, t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

func TestDecodeKubeletPods(t *testing.T) {
	t.Parallel()
	got, problems := recorded(t, "kubelet-pods.json")
	both := func(a amount.Amounts) Resources { return Resources{Requests: a, Limits: a} }
	want := []*Pod{
		{
			UID: "a5e4d8c7b6a5f4e3d2c1b0a998877665", Namespace: "kube-system", Name: "etcd-node-001", Static: true,
			Kube: protocol.KubeBurstable, Priority: 2000001000, HostNetwork: true, Phase: PhaseRunning, Started: at("03:04:06"), Grace: 30 * time.Second,
			Containers: []Container{{
				Name: "etcd", ID: strings.Repeat("1", 64), Running: true,
				Resources: Resources{Requests: amount.Amounts{CPU: 100, Memory: 100 << 20}},
			}},
		},
		{
			UID: "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", APIUID: "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", Namespace: "shop", Name: "web-0",
			Labels:      map[string]string{protocol.LabelQoSClass: "LSR", protocol.LabelPriority: "9200"},
			Annotations: map[string]string{protocol.AnnotationResourceStatus: `{"cpuset":"2-3"}`},
			QoS:         protocol.QoSLSR, Kube: protocol.KubeGuaranteed, Priority: 9500, PriorityClass: protocol.PriorityProd, SubPriority: 9200,
			Phase: PhaseRunning, Started: at("04:00:01"), Grace: time.Minute, IPs: []string{"10.1.0.5"},
			Containers: []Container{
				{
					Name: "mesh", ID: strings.Repeat("2", 64), Kind: Sidecar, Running: true,
					Resources: both(amount.Amounts{CPU: 200, Memory: 64 << 20}),
				},
				{Name: "migrate", ID: strings.Repeat("3", 64), Kind: Init, Resources: both(amount.Amounts{CPU: 3000, Memory: 1 << 30})},
				{
					Name: "app", ID: strings.Repeat("4", 64), Running: true,
					// Granted while a resize waits; what the runtime reports (1 CPU) is not believed.
					Resources: Resources{Requests: amount.Amounts{CPU: 1500, Memory: 4 << 30}, Limits: amount.Amounts{CPU: 2000, Memory: 4 << 30}},
				},
				{Name: "debug", Kind: Ephemeral},
			},
		},
		{
			UID: "5c1d7f9e-0000-4000-8000-0000000000aa", APIUID: "5c1d7f9e-0000-4000-8000-0000000000aa", Namespace: "batch", Name: "spark-exec-1", DaemonSet: true,
			Labels:      map[string]string{protocol.LabelQoSClass: "BE", protocol.LabelEvictionEnabled: "true"},
			Annotations: map[string]string{protocol.AnnotationExtendedResource: `{"containers":{"exec":{"limits":{"kubernetes.io/batch-cpu":"4k"}}}}`},
			QoS:         protocol.QoSBE, Kube: protocol.KubeBestEffort, Priority: 5300, PriorityClass: protocol.PriorityBatch,
			Phase: PhaseRunning, Started: at("05:00:01"), Deleted: at("05:30:30"), Grace: 30 * time.Second,
			Overhead: amount.Amounts{CPU: 250, Memory: 120 << 20},
			Containers: []Container{{
				Name: "exec", Resources: both(amount.Amounts{BatchCPU: 4000, BatchMemory: 8 << 30, Devices: map[string]int64{"koordinator.sh/gpu-core": 50}}),
			}},
		},
		{
			UID: "6d2e80af-0000-4000-8000-0000000000bb", APIUID: "6d2e80af-0000-4000-8000-0000000000bb", Namespace: "shop", Name: "shared",
			Kube: protocol.KubeGuaranteed, Phase: PhasePending,
			Own:        &Resources{Requests: amount.Amounts{CPU: 2000, Memory: 2 << 30}, Limits: amount.Amounts{CPU: 2000, Memory: 2 << 30}},
			Containers: []Container{{Name: "a"}, {Name: "b", Resources: Resources{Requests: amount.Amounts{CPU: 500}}}},
		},
		{
			UID: "7e3f91b0-0000-4000-8000-0000000000cc", APIUID: "7e3f91b0-0000-4000-8000-0000000000cc", Namespace: "batch", Name: "done",
			Labels: map[string]string{protocol.LabelQoSClass: "GOLD", protocol.LabelPriority: "high"}, Kube: protocol.KubeBurstable, Phase: PhaseSucceeded,
			Containers: []Container{{Name: "job", Resources: Resources{Requests: amount.Amounts{Memory: 1 << 30}}}},
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	wantProblems := []string{
		"batch/done: koordinator.sh/qosClass: unknown class", `batch/done: koordinator.sh/priority: "high" is no whole number of 32 bits`, `batch/done: job: cpu: bad quantity "lots"`,
		`not a usable pod: "batch"/"broken": bad UID "../../etc"`,
	}
	if d := cmp.Diff(wantProblems, problems); d != "" {
		t.Error(d)
	}
}

// What decides whether a pod is evicted, and when, is told where it cannot be read: nobody would look for it in what was evicted instead.
func TestDecodeEvictionKeys(t *testing.T) {
	t.Parallel()
	for annotations, c := range map[string]struct {
		priority int32
		problem  string
	}{
		`{"koordinator.sh/eviction-priority":"-5","koordinator.sh/eviction-policy":"[\"BEMemoryEvict\"]"}`: {-5, ""},
		`{"koordinator.sh/eviction-priority":"first"}`:                                                     {0, `koordinator.sh/eviction-priority: "first" is no whole number of 32 bits`},
		`{"koordinator.sh/eviction-priority":"99999999999"}`:                                               {0, `koordinator.sh/eviction-priority: "99999999999" is no whole number of 32 bits`},
		`{"koordinator.sh/eviction-policy":"BEMemoryEvict"}`: {
			0, `koordinator.sh/eviction-policy: "BEMemoryEvict" is no JSON list of features: none may evict the pod`,
		},
		`{"koordinator.sh/eviction-policy":"[` + strings.Repeat(" ", 70000) + `]"}`: {
			0, `koordinator.sh/eviction-policy: "[` + strings.Repeat(" ", 63) + `" is no JSON list of features: none may evict the pod`,
		},
	} {
		p, problems, err := Decode([]byte(`{"metadata":{"uid":"u","namespace":"batch","name":"a","annotations":` + annotations + `}}`))
		if err != nil || p.EvictionPriority != c.priority || strings.Join(problems, "; ") != c.problem {
			t.Errorf("%s: %+v, %q, %v", annotations, p, problems, err)
		}
	}
}

func TestDecodeMirrorPod(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/api-mirror.json")
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if p.UID != "a5e4d8c7b6a5f4e3d2c1b0a998877665" || p.APIUID != "99999999-aaaa-bbbb-cccc-dddddddddddd" || !p.Static {
		t.Errorf("%+v", p)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	many := `{"metadata":{"uid":"u","namespace":"n","name":"p"},"spec":{"containers":[` + strings.Repeat(`{"name":"c"},`, maxContainers) + `{"name":"c"}]}}`
	for name, raw := range map[string]string{
		"not JSON":            `{`,
		"no UID":              `{"metadata":{"namespace":"n","name":"p"}}`,
		"path in UID":         `{"metadata":{"uid":"a/b","namespace":"n","name":"p"}}`,
		"path in hash":        `{"metadata":{"uid":"u","namespace":"n","name":"p","annotations":{"kubernetes.io/config.mirror":"x","kubernetes.io/config.hash":".."}}}`,
		"no name":             `{"metadata":{"uid":"u","namespace":"n"}}`,
		"slash in container":  `{"metadata":{"uid":"u","namespace":"n","name":"p"},"spec":{"containers":[{"name":"a/b"}]}}`,
		"slash in id":         `{"metadata":{"uid":"u","namespace":"n","name":"p"},"spec":{"containers":[{"name":"a"}]},"status":{"containerStatuses":[{"name":"a","containerID":"x://../y"}]}}`,
		"too many containers": many,
		"labels are no map":   `{"metadata":{"uid":"u","namespace":"n","name":"p","labels":[]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if p, _, err := Decode([]byte(raw)); !errors.Is(err, ErrPod) || p != nil {
				t.Errorf("%+v %v", p, err)
			}
		})
	}
}

func TestClassAndBand(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in    Pod
		class protocol.QoS
		band  protocol.PriorityClass
	}{
		"label wins":       {Pod{QoS: protocol.QoSLS, Kube: protocol.KubeBestEffort}, protocol.QoSLS, protocol.PriorityProd},
		"guaranteed":       {Pod{Kube: protocol.KubeGuaranteed}, protocol.QoSLSR, protocol.PriorityProd},
		"burstable":        {Pod{Kube: protocol.KubeBurstable}, protocol.QoSLS, protocol.PriorityProd},
		"best effort":      {Pod{Kube: protocol.KubeBestEffort}, protocol.QoSBE, protocol.PriorityBatch},
		"band by priority": {Pod{Kube: protocol.KubeBestEffort, PriorityClass: protocol.PriorityClassOf(3500)}, protocol.QoSBE, protocol.PriorityFree},
		"between bands":    {Pod{Kube: protocol.KubeBurstable, PriorityClass: protocol.PriorityClassOf(6000)}, protocol.QoSLS, protocol.PriorityProd},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := c.in.Class(); got != c.class {
				t.Errorf("class %v, want %v", got, c.class)
			}
			if got := c.in.Band(); got != c.band {
				t.Errorf("band %v, want %v", got, c.band)
			}
		})
	}
	for v, want := range map[int32]protocol.PriorityClass{
		9000: protocol.PriorityProd, 9999: protocol.PriorityProd, 10000: protocol.PriorityNone, 7000: protocol.PriorityMid, 5999: protocol.PriorityBatch,
		3000: protocol.PriorityFree, 2999: protocol.PriorityNone, 0: protocol.PriorityNone, -1: protocol.PriorityNone,
	} {
		if got := protocol.PriorityClassOf(v); got != want {
			t.Errorf("%d is %v, want %v", v, got, want)
		}
	}
}

func TestSums(t *testing.T) {
	t.Parallel()
	c := func(kind Kind, cpu, limit int64) Container {
		return Container{Kind: kind, Resources: Resources{Requests: amount.Amounts{CPU: milli(cpu)}, Limits: amount.Amounts{CPU: milli(limit)}}}
	}
	for name, x := range map[string]struct {
		in               Pod
		requests, limits int64
	}{
		"worked example":        {Pod{Containers: []Container{c(Sidecar, 100, 0), c(Init, 1000, 0), c(Regular, 500, 0)}}, 1100, 0},
		"init before sidecar":   {Pod{Containers: []Container{c(Init, 1000, 1500), c(Sidecar, 100, 200), c(Regular, 500, 700)}}, 1000, 1500},
		"running is more":       {Pod{Containers: []Container{c(Init, 100, 0), c(Regular, 500, 600), c(Regular, 500, 0)}}, 1000, 600},
		"ephemeral is nothing":  {Pod{Containers: []Container{c(Ephemeral, 100, 100)}}, 0, 0},
		"overhead":              {Pod{Containers: []Container{c(Regular, 500, 600)}, Overhead: amount.Amounts{CPU: 250}}, 750, 850},
		"overhead, no limit":    {Pod{Containers: []Container{c(Regular, 500, 0)}, Overhead: amount.Amounts{CPU: 250}}, 750, 0},
		"pod-level replaces":    {Pod{Containers: []Container{c(Regular, 500, 600)}, Own: &Resources{Requests: amount.Amounts{CPU: 2000}, Limits: amount.Amounts{CPU: 3000}}}, 2000, 3000},
		"pod-level memory only": {Pod{Containers: []Container{c(Regular, 500, 600)}, Own: &Resources{Requests: amount.Amounts{Memory: 2000}}}, 500, 600},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := x.in.Requests().CPU; got != milli(x.requests) {
				t.Errorf("requests %d, want %d", got, x.requests)
			}
			if got := x.in.Limits().CPU; got != milli(x.limits) {
				t.Errorf("limits %d, want %d", got, x.limits)
			}
		})
	}
}

// manyStatuses is a pod of as many containers as are kept, with a status of the last one behind lots of others and another behind it.
func manyStatuses() []byte {
	var b strings.Builder
	b.WriteString(`{"metadata":{"uid":"u","namespace":"d","name":"p"},"spec":{"containers":[{"name":"c1"}`)
	for i := 2; i <= maxContainers; i++ {
		fmt.Fprintf(&b, `,{"name":"c%d"}`, i)
	}
	b.WriteString(`]},"status":{"containerStatuses":[` + strings.Repeat(`{},`, 300_000))
	fmt.Fprintf(&b, `{"name":"c%d","containerID":"x://first"},{"name":"c%d","containerID":"x://second"}]}}`, maxContainers, maxContainers)
	return []byte(b.String())
}

func TestStatusIsTheFirstOfItsName(t *testing.T) {
	t.Parallel()
	p, problems, err := Decode(manyStatuses())
	if err != nil || problems != nil || len(p.Containers) != maxContainers {
		t.Fatalf("%v, %v", problems, err)
	}
	for i, c := range p.Containers {
		if want := map[bool]string{true: "first"}[i == maxContainers-1]; c.ID != want {
			t.Errorf("%s has ID %q, want %q", c.Name, c.ID, want)
		}
	}
}

func TestKubeQoSWithoutStatus(t *testing.T) {
	t.Parallel()
	full := Resources{Requests: amount.Amounts{CPU: 1, Memory: 1}, Limits: amount.Amounts{CPU: 1, Memory: 1}}
	for name, c := range map[string]struct {
		in   Pod
		want protocol.KubeQoS
	}{
		"nothing":            {Pod{Containers: []Container{{}, {Kind: Init}}}, protocol.KubeBestEffort},
		"batch only":         {Pod{Containers: []Container{{Resources: Resources{Requests: amount.Amounts{BatchCPU: 1}}}}}, protocol.KubeBestEffort},
		"all full":           {Pod{Containers: []Container{{Resources: full}, {Kind: Init, Resources: full}, {Kind: Ephemeral}}}, protocol.KubeGuaranteed},
		"limits alone":       {Pod{Containers: []Container{{Resources: Resources{Limits: full.Limits}}}}, protocol.KubeGuaranteed},
		"one without":        {Pod{Containers: []Container{{Resources: full}, {}}}, protocol.KubeBurstable},
		"CPU only":           {Pod{Containers: []Container{{Resources: Resources{Requests: amount.Amounts{CPU: 1}, Limits: amount.Amounts{CPU: 1}}}}}, protocol.KubeBurstable},
		"pod-level full":     {Pod{Own: &full, Containers: []Container{{}}}, protocol.KubeGuaranteed},
		"pod-level requests": {Pod{Own: &Resources{Requests: full.Requests}, Containers: []Container{{Resources: full}}}, protocol.KubeBurstable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := c.in.kubeQoS(); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

func TestSpecs(t *testing.T) {
	t.Parallel()
	list, _ := recorded(t, "kubelet-pods.json")
	cpu, memory := int64(4000), int64(8<<30)
	batch := protocol.ExtendedResources{BatchCPU: &cpu, BatchMemory: &memory}
	want := map[string]node.PodSpec{
		"a5e4d8c7b6a5f4e3d2c1b0a998877665": {Containers: map[string]node.ContainerSpec{"etcd": {CPURequest: 100, MemoryRequest: 100 << 20}}},
		"0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0": {Containers: map[string]node.ContainerSpec{
			"mesh":    {CPURequest: 200, CPULimit: 200, MemoryRequest: 64 << 20, MemoryLimit: 64 << 20},
			"migrate": {CPURequest: 3000, CPULimit: 3000, MemoryRequest: 1 << 30, MemoryLimit: 1 << 30, Init: true},
			"app":     {CPURequest: 1500, CPULimit: 2000, MemoryRequest: 4 << 30, MemoryLimit: 4 << 30},
		}},
		"5c1d7f9e-0000-4000-8000-0000000000aa": {
			Containers: map[string]node.ContainerSpec{"exec": {Devices: map[string]int64{"koordinator.sh/gpu-core": 50}}},
			Extended:   map[string]protocol.ExtendedContainer{"exec": {Requests: batch, Limits: batch}},
		},
		"6d2e80af-0000-4000-8000-0000000000bb": {Containers: map[string]node.ContainerSpec{"a": {}, "b": {CPURequest: 500}}},
	}
	if d := cmp.Diff(want, newSnapshot(1, time.Time{}, list).Specs()); d != "" {
		t.Error(d)
	}
}

// FuzzDecode: whatever the object, a pod that comes out can be used in paths and sums.
func FuzzDecode(f *testing.F) {
	data, err := os.ReadFile("testdata/kubelet-pods.json")
	if err != nil {
		f.Fatal(err)
	}
	if _, err := jsonscan.List(bytes.NewReader(data), MaxObject, maxPods, func(raw []byte, _ bool) error {
		f.Add(bytes.Clone(raw))
		return nil
	}); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, problems, err := Decode(raw)
		if err != nil {
			if p != nil {
				t.Fatal("a part of a pod beside an error")
			}
			return
		}
		if strings.ContainsAny(p.UID+p.APIUID+p.Namespace+p.Name, "/\x00") || p.UID == "" || len(problems) > 8 || p.Grace < 0 {
			t.Fatalf("%+v", p)
		}
		for _, c := range p.Containers {
			if strings.Contains(c.Name+c.ID, "/") || c.Requests.CPU < 0 || c.Limits.Memory < 0 {
				t.Fatalf("%+v", c)
			}
		}
		if r := p.Requests(); r.CPU < 0 || r.Memory < 0 {
			t.Fatalf("requests %+v", r)
		}
		if l := p.Limits(); l.CPU < 0 || l.Memory < 0 {
			t.Fatalf("limits %+v", l)
		}
		if s := p.Spec(); len(s.Containers) > len(p.Containers) {
			t.Fatalf("%+v", s)
		}
	})
}
