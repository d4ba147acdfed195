// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package noderesource

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/koord-rt/koord-rt/api/protocol"
	slov1alpha1 "github.com/koord-rt/koord-rt/api/slo/v1alpha1"
	topologyv1alpha1 "github.com/koord-rt/koord-rt/api/topology/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/kept"
	"github.com/koord-rt/koord-rt/cluster/slo/config"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// resources makes a list of pairs of names and quantities.
func resources(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func usage(cpu, memory string) slov1alpha1.ResourceMap {
	return slov1alpha1.ResourceMap{Resources: resources("cpu", cpu, "memory", memory)}
}

// strategy parses a ConfigMap that must be right.
func strategy(t *testing.T, data map[string]string) *config.Config {
	t.Helper()
	c, problems := config.Parse(data, nil)
	if len(problems) > 0 {
		t.Fatalf("%v", problems)
	}
	return c
}

const on = `{"enable": true, "cpuReclaimThresholdPercent": 65, "memoryReclaimThresholdPercent": 65}`

// scene is an input with the objects that it comes from.
type scene struct {
	Input
	Metric *slov1alpha1.NodeMetric
	Pods   []corev1.Pod
}

// decide decides by what the cache would keep of them.
func (s *scene) decide() Output {
	s.Report, s.Input.Pods = nil, nil
	if s.Metric != nil {
		s.Report = kept.NodeMetricOf(s.Metric.DeepCopy(), false).Report
	}
	for i := range s.Pods {
		if p := kept.PodOf(&s.Pods[i], false); !p.Finished {
			s.Input.Pods = append(s.Input.Pods, p.Value)
		}
	}
	return Decide(&s.Input)
}

// example is the one of Koordinator's tests, TestBatch of policy/capacity has its numbers.
func example(t *testing.T) *scene {
	t.Helper()
	pod := func(name, qos string, kube corev1.PodQOSClass, requests corev1.ResourceList) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "test", Name: name}}
		p.Spec.NodeName = "n"
		p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requests}}}
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, QOSClass: kube}
		if qos != "" {
			p.Labels = map[string]string{protocol.LabelQoSClass: qos}
		}
		return p
	}
	gone := pod("d", "LS", corev1.PodQOSGuaranteed, resources("cpu", "10", "memory", "10G"))
	gone.Status.Phase = corev1.PodSucceeded
	at := metav1.NewTime(now.Add(-30 * time.Second))
	return &scene{Input: Input{
		Config: strategy(t, map[string]string{config.KeyColocation: on}), Now: now, Since: time.Hour, ZonesSince: time.Hour,
		Node: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{}, Annotations: map[string]string{}},
			Status: corev1.NodeStatus{
				Capacity: resources("cpu", "100", "memory", "120G"), Allocatable: resources("cpu", "100", "memory", "120G"),
			},
		},
	},
		Metric: &slov1alpha1.NodeMetric{Status: slov1alpha1.NodeMetricStatus{
			UpdateTime: &at,
			NodeMetric: &slov1alpha1.NodeMetricInfo{NodeUsage: usage("50", "55G"), SystemUsage: usage("7", "12G")},
			PodsMetric: []slov1alpha1.PodMetric{
				{Namespace: "test", Name: "a", PodUsage: usage("11", "11G"), Priority: "koord-prod", QoS: "LS"},
				{Namespace: "test", Name: "b", PodUsage: usage("10", "10G"), Priority: "koord-batch", QoS: "BE"},
				{Namespace: "test", Name: "c", PodUsage: usage("22", "22G"), Priority: "koord-prod", QoS: "LSR"},
			},
			ProdReclaimableMetric: &slov1alpha1.Prediction{Resource: usage("10", "15G")},
		}},
		Pods: []corev1.Pod{
			pod("a", "LS", corev1.PodQOSGuaranteed, resources("cpu", "20", "memory", "20G")), pod("b", "BE", corev1.PodQOSBestEffort, nil),
			pod("c", "", corev1.PodQOSGuaranteed, resources("cpu", "20", "memory", "40G")), gone,
		},
	}
}

// apply does with the node what the API server would.
func apply(n *corev1.Node, patch map[string]any) {
	merge := func(to map[string]string, what any) map[string]string {
		if to == nil {
			to = map[string]string{}
		}
		diff, _ := what.(map[string]any)
		for key, v := range diff {
			if v == nil {
				delete(to, key)
			} else {
				to[key] = v.(string)
			}
		}
		return to
	}
	list := func(to corev1.ResourceList, what any) {
		diff, _ := what.(map[string]any)
		for name, v := range diff {
			if v == nil {
				delete(to, corev1.ResourceName(name))
			} else {
				to[corev1.ResourceName(name)] = resource.MustParse(v.(string))
			}
		}
	}
	if meta, ok := patch["metadata"].(map[string]any); ok {
		n.Annotations, n.Labels = merge(n.Annotations, meta["annotations"]), merge(n.Labels, meta["labels"])
	}
	if status, ok := patch["status"].(map[string]any); ok {
		list(n.Status.Capacity, status["capacity"])
		list(n.Status.Allocatable, status["allocatable"])
	}
}

// text is a patch as it is sent.
func text(t *testing.T, patch map[string]any) string {
	t.Helper()
	if patch == nil {
		return ""
	}
	out, err := json.Marshal(patch)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

const (
	lentText = `{"kubernetes.io/batch-cpu":"25k","kubernetes.io/batch-memory":"33G","kubernetes.io/mid-cpu":"10k","kubernetes.io/mid-memory":"15G"}`
	goneText = `{"kubernetes.io/batch-cpu":null,"kubernetes.io/batch-memory":null,"kubernetes.io/mid-cpu":null,"kubernetes.io/mid-memory":null}`
)

func both(list string) string {
	return `"status":{"allocatable":` + list + `,"capacity":` + list + `}`
}

func origin(value string) string {
	return `"metadata":{"annotations":{"node.koordinator.sh/originExtendedAllocatable":` + value + `}}`
}

var fresh = "{" + origin(`"{\"resources\":{\"kubernetes.io/batch-cpu\":\"25000\",\"kubernetes.io/batch-memory\":\"33000000000\"}}"`) + "," + both(lentText) + "}"

func TestDecide(t *testing.T) {
	t.Parallel()
	lent := func(in *scene) { apply(in.Node, in.decide().Node) }
	for _, tc := range []struct {
		name    string
		change  func(*testing.T, *scene)
		want    string
		without string
		problem string
	}{
		{"lent", func(*testing.T, *scene) {}, fresh, "", ""},
		{"lent already", func(_ *testing.T, in *scene) { lent(in) }, "", "", ""},
		{"colocation is off", func(t *testing.T, in *scene) { in.Config = strategy(t, nil) }, "", "colocation is off", ""},
		{"colocation goes off", func(t *testing.T, in *scene) {
			lent(in)
			in.Config = strategy(t, map[string]string{config.KeyColocation: `{"enable": false}`})
		}, "{" + origin("null") + "," + both(goneText) + "}", "colocation is off", ""},
		{"off for this node", func(t *testing.T, in *scene) {
			lent(in)
			in.Node.Annotations[protocol.AnnotationColocationStrategy] = `{"enable": false}`
		}, "{" + origin("null") + "," + both(goneText) + "}", "colocation is off", ""},
		{"no report", func(_ *testing.T, in *scene) { in.Metric = nil }, "", "the node has not reported", ""},
		{"an object without a report", func(_ *testing.T, in *scene) { in.Metric.Status = slov1alpha1.NodeMetricStatus{} }, "", "the node has not reported", ""},
		{"an old report", func(_ *testing.T, in *scene) {
			lent(in)
			in.Now = in.Now.Add(15 * time.Minute)
		}, "{" + origin("null") + "," + both(goneText) + "}", "the last report is 15.5 min old, more than 15 min", ""},
		{"a wobble", func(_ *testing.T, in *scene) {
			lent(in)
			in.Metric.Status.NodeMetric.SystemUsage = usage("7.1", "12G")
		}, "", "", ""},
		{"a small change, just now written", func(_ *testing.T, in *scene) {
			lent(in)
			in.Since, in.Metric.Status.NodeMetric.SystemUsage = time.Minute, usage("8", "12G")
		}, "", "", ""},
		{"a small change after a while", func(_ *testing.T, in *scene) {
			lent(in)
			in.Metric.Status.NodeMetric.SystemUsage = usage("8", "12G")
		}, "{" + origin(`"{\"resources\":{\"kubernetes.io/batch-cpu\":\"24000\",\"kubernetes.io/batch-memory\":\"33000000000\"}}"`) + "," +
			both(`{"kubernetes.io/batch-cpu":"24k"}`) + "}", "", ""},
		{"a large change at once", func(_ *testing.T, in *scene) {
			lent(in)
			in.Since, in.Metric.Status.PodsMetric[0].PodUsage = time.Second, usage("17", "11G")
		}, "{" + origin(`"{\"resources\":{\"kubernetes.io/batch-cpu\":\"19000\",\"kubernetes.io/batch-memory\":\"33000000000\"}}"`) + "," +
			both(`{"kubernetes.io/batch-cpu":"19k"}`) + "}", "", ""},
		{"somebody has taken one of the two", func(_ *testing.T, in *scene) {
			lent(in)
			delete(in.Node.Status.Allocatable, protocol.ResourceMidCPU)
		}, "{" + both(`{"kubernetes.io/mid-cpu":"10k"}`) + "}", "", ""},
		{"another system has booked", func(_ *testing.T, in *scene) {
			lent(in)
			in.Node.Annotations[protocol.AnnotationThirdPartyAllocs] = `{"allocations":[{"name":"yarn","priority":"koord-batch",` +
				`"resources":{"kubernetes.io/batch-cpu":"5000"}},{"name":"x","priority":"koord-mid","resources":{"kubernetes.io/batch-cpu":"9"}}]}`
		}, "{" + both(`{"kubernetes.io/batch-cpu":"20k"}`) + "}", "", ""},
		{"the administrator reserves", func(_ *testing.T, in *scene) {
			lent(in)
			in.Node.Annotations[protocol.AnnotationNodeReservation] = `{"reservedCPUs":"0-19","resources":{"cpu":"1","memory":"20G"}}`
		}, "{" + origin(`"{\"resources\":{\"kubernetes.io/batch-cpu\":\"12000\",\"kubernetes.io/batch-memory\":\"25000000000\"}}"`) + "," +
			both(`{"kubernetes.io/batch-cpu":"12k","kubernetes.io/batch-memory":"25G"}`) + "}", "", ""},
		{"the kubelet keeps, and the node is amplified", func(_ *testing.T, in *scene) {
			lent(in)
			in.Node.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("135")
			in.Node.Annotations[protocol.AnnotationRawAllocatable] = `{"cpu":"90"}`
		}, "{" + origin(`"{\"resources\":{\"kubernetes.io/batch-cpu\":\"22000\",\"kubernetes.io/batch-memory\":\"33000000000\"}}"`) + "," +
			both(`{"kubernetes.io/batch-cpu":"22k"}`) + "}", "", ""},
		{"an annotation that cannot be read", func(_ *testing.T, in *scene) {
			lent(in)
			in.Node.Annotations[protocol.AnnotationNodeReservation] = `{"reservedCPUs":"5-1"}`
		}, "", "", "annotation node.koordinator.sh/reservation: reservedCPUs"},
		{"the ConfigMap was never read", func(_ *testing.T, in *scene) {
			lent(in)
			in.Config, _ = config.Parse(map[string]string{config.KeyColocation: "{"}, nil)
		}, "", "", "colocation-config has never been read"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			in := example(t)
			tc.change(t, in)
			out := in.decide()
			if diff := cmp.Diff(tc.want, text(t, out.Node)); diff != "" {
				t.Error(diff)
			}
			said := strings.Join(out.Problems, "\n")
			if out.Without != tc.without || (tc.problem == "") != (said == "") || !strings.Contains(said, tc.problem) {
				t.Errorf("without %q, problems %q", out.Without, said)
			}
			apply(in.Node, out.Node)
			if again := in.decide(); again.Node != nil {
				t.Errorf("and then once more: %s", text(t, again.Node))
			}
		})
	}
}

// TestAgain: a node whose report grows old is looked at when it counts for less, and when it is too old, whatever happens.
func TestAgain(t *testing.T) {
	t.Parallel()
	in := example(t)
	in.Now = in.Now.Add(-30 * time.Second) // the report's
	begun := in.Now
	var lent []int64
	var at []time.Duration
	for range 10 {
		out := in.decide()
		lent, at = append(lent, out.Lent[protocol.ResourceBatchCPU]), append(at, in.Now.Sub(begun))
		if out.Without != "" {
			if out.Again != 0 {
				t.Errorf("without %q, again after %s", out.Without, out.Again)
			}
			break
		}
		apply(in.Node, out.Node)
		in.Now = in.Now.Add(out.Again)
	}
	const minute, third = time.Minute, 200 * time.Second
	if diff := cmp.Diff([]int64{25000, 18750, 12500, 6250, 0}, lent); diff != "" {
		t.Error(diff)
	}
	want := []time.Duration{0, 5*minute + time.Second, 5*minute + third + time.Second, 5*minute + 2*third + time.Second, 15*minute + time.Second}
	if diff := cmp.Diff(want, at); diff != "" {
		t.Error(diff)
	}
}

const normalization = `{"enable": true, "ratioModel": {"fast": {"baseRatio": 1.2, "hyperThreadEnabledRatio": 1.5}}}`

func TestRatios(t *testing.T) {
	t.Parallel()
	cpu := func(model string) *topologyv1alpha1.NodeResourceTopology {
		return &topologyv1alpha1.NodeResourceTopology{ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{protocol.AnnotationCPUBasicInfo: `{"cpuModel":"` + model + `"}`},
		}}
	}
	for name, tc := range map[string]struct {
		data    map[string]string
		change  func(*scene)
		want    map[string]string
		batch   int64
		problem string
	}{
		"off": {nil, func(*scene) {}, nil, 25000, ""},
		"normalised": {map[string]string{config.KeyNormalization: normalization}, func(in *scene) { in.Topology = cpu("fast") }, map[string]string{
			protocol.AnnotationNormalizationRatio: "1.20", protocol.AnnotationAmplificationRatio: `{"cpu":1.20}`,
		}, 30000, ""},
		"amplified by both, at once": {map[string]string{
			config.KeyNormalization: normalization, config.KeyAmplification: `{"enable": true, "resourceAmplificationRatio": {"cpu": 1.5, "memory": 1.1}}`,
		}, func(in *scene) { in.Topology = cpu("fast") }, map[string]string{
			protocol.AnnotationNormalizationRatio: "1.20", protocol.AnnotationAmplificationRatio: `{"cpu":1.80,"memory":1.10}`,
		}, 30000, ""},
		"the node's label goes before": {map[string]string{config.KeyNormalization: normalization}, func(in *scene) {
			in.Topology, in.Node.Labels[protocol.LabelNormalizationEnabled] = cpu("fast"), "false"
			in.Node.Annotations[protocol.AnnotationNormalizationRatio] = "1.20"
		}, map[string]string{protocol.AnnotationNormalizationRatio: "1.00"}, 25000, ""},
		"the model is not told yet": {map[string]string{config.KeyNormalization: normalization}, func(in *scene) {
			in.Node.Annotations[protocol.AnnotationNormalizationRatio] = "1.20"
		}, map[string]string{
			protocol.AnnotationNormalizationRatio: "1.20", protocol.AnnotationAmplificationRatio: `{"cpu":1.20}`,
		}, 30000, "does not tell its CPU model yet"},
		"a model without a ratio": {map[string]string{config.KeyNormalization: normalization}, func(in *scene) { in.Topology = cpu("slow") }, nil, 25000,
			`no ratio for CPU model "slow"`},
		"taken away": {nil, func(in *scene) {
			in.Node.Annotations[protocol.AnnotationNormalizationRatio] = "1.20"
			in.Node.Annotations[protocol.AnnotationAmplificationRatio] = `{"cpu":1.20}`
		}, map[string]string{protocol.AnnotationNormalizationRatio: "1.00"}, 25000, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := example(t)
			data := map[string]string{config.KeyColocation: on}
			for k, v := range tc.data {
				data[k] = v
			}
			in.Config = strategy(t, data)
			tc.change(in)
			out := in.decide()
			apply(in.Node, out.Node)
			got := map[string]string{}
			for _, key := range []string{protocol.AnnotationNormalizationRatio, protocol.AnnotationAmplificationRatio} {
				if v, ok := in.Node.Annotations[key]; ok {
					got[key] = v
				}
			}
			if tc.want == nil {
				tc.want = map[string]string{}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if v := out.Lent[protocol.ResourceBatchCPU]; v != tc.batch {
				t.Errorf("batch-cpu %d, want %d", v, tc.batch)
			}
			if said := strings.Join(out.Problems, "\n"); (tc.problem == "") != (said == "") || !strings.Contains(said, tc.problem) {
				t.Errorf("problems %q", said)
			}
			if again := in.decide(); again.Node != nil {
				t.Errorf("and then once more: %s", text(t, again.Node))
			}
		})
	}
}
