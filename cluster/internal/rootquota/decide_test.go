// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package rootquota

import (
	"maps"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/koord-rt/koord-rt/api/protocol"
	quotav1alpha1 "github.com/koord-rt/koord-rt/api/quota/v1alpha1"
)

// node is one of 10 CPUs, 1000 bytes of memory and of storage, as in upstream's examples.
func node(change func(*corev1.Node)) corev1.Node {
	n := corev1.Node{Status: corev1.NodeStatus{
		Allocatable: list("cpu", "10", "memory", "1000", "storage", "1000"),
		Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
	if change != nil {
		change(&n)
	}
	return n
}

func list(of ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(of); i += 2 {
		out[corev1.ResourceName(of[i])] = resource.MustParse(of[i+1])
	}
	return out
}

func texts(l corev1.ResourceList) map[string]string {
	out := map[string]string{}
	for name, v := range l {
		out[string(name)] = v.String()
	}
	return out
}

// profile1 is upstream's example, with a ratio where one is given.
func profile1(ratio string) *quotav1alpha1.ElasticQuotaProfile {
	p := &quotav1alpha1.ElasticQuotaProfile{
		ObjectMeta: metav1.ObjectMeta{Name: "profile1", Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec:       quotav1alpha1.ElasticQuotaProfileSpec{QuotaName: "profile1-root", NodeSelector: &metav1.LabelSelector{}},
	}
	if ratio != "" {
		p.Spec.ResourceRatio = &ratio
	}
	return p
}

// TestOf has the values of upstream's own test: two nodes of 10 CPUs, with a ratio, a tree id, labels and resource keys.
func TestOf(t *testing.T) {
	t.Parallel()
	const most = "4611686018427387" // MaxInt64/2000
	two := []corev1.Node{node(nil), node(nil)}
	limits := func(of ...string) map[string]string {
		out := map[string]string{}
		for _, name := range of {
			out[name] = most
		}
		return out
	}
	for name, c := range map[string]struct {
		profile         *quotav1alpha1.ElasticQuotaProfile
		change          func(*quotav1alpha1.ElasticQuotaProfile)
		nodes           []corev1.Node
		min, max        map[string]string
		total, shut, id string
		labels          map[string]string
	}{
		"one zone": {
			profile: profile1(""), nodes: two, min: map[string]string{"cpu": "20", "memory": "2000"}, max: limits("cpu", "memory"),
			total: `{"cpu":"20","memory":"2000","storage":"2000"}`, shut: `{}`,
		},
		"a ratio": {
			profile: profile1("0.9"), nodes: two, min: map[string]string{"cpu": "18", "memory": "1800"}, max: limits("cpu", "memory"),
			total: `{"cpu":"18","memory":"1800","storage":"1800"}`, shut: `{}`,
		},
		"labels and a tree id": {
			profile: profile1(""), nodes: two[:1], min: map[string]string{"cpu": "10", "memory": "1k"}, max: limits("cpu", "memory"),
			change: func(p *quotav1alpha1.ElasticQuotaProfile) {
				p.Labels[protocol.LabelQuotaTreeID] = "tree1"
				p.Spec.QuotaLabels = map[string]string{"zone": "a", protocol.LabelQuotaIsRoot: "false", protocol.LabelQuotaTreeID: "other"}
			},
			total: `{"cpu":"10","memory":"1k","storage":"1k"}`, shut: `{}`, id: "tree1", labels: map[string]string{"zone": "a"},
		},
		"resource keys": {
			profile: profile1("0.9"), nodes: two, min: map[string]string{"cpu": "18", "nvidia.com/gpu": "0"}, max: limits("cpu", "nvidia.com/gpu"),
			change: func(p *quotav1alpha1.ElasticQuotaProfile) {
				p.Annotations[protocol.AnnotationQuotaResourceKeys] = `["cpu", "nvidia.com/gpu"]`
			},
			total: `{"cpu":"18","memory":"1800","storage":"1800"}`, shut: `{}`,
		},
		"cordoned and not ready": {
			profile: profile1("0.5"), min: map[string]string{"cpu": "20", "memory": "2000"}, max: limits("cpu", "memory"),
			nodes: []corev1.Node{
				node(nil), node(func(n *corev1.Node) { n.Spec.Unschedulable = true }),
				node(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }), node(func(n *corev1.Node) { n.Status.Conditions = nil }),
			},
			total: `{"cpu":"20","memory":"2000","storage":"2000"}`, shut: `{"cpu":"15","memory":"1500","storage":"1500"}`,
		},
		"no nodes": {profile: profile1(""), min: map[string]string{"cpu": "0", "memory": "0"}, max: limits("cpu", "memory"), total: `{}`, shut: `{}`},
		"what floats would lose, and one notation": {
			profile: profile1("0.29"), min: map[string]string{"cpu": "29m", "memory": "580Ki"}, max: limits("cpu", "memory"),
			nodes: []corev1.Node{node(func(n *corev1.Node) { n.Status.Allocatable = list("cpu", "100m", "memory", "2048000") })},
			total: `{"cpu":"29m","memory":"580Ki"}`, shut: `{}`,
		},
		"more than max": {
			profile: profile1(""), min: map[string]string{"cpu": "1", "memory": "5Pi"}, max: map[string]string{"cpu": most, "memory": "5Pi"},
			nodes: []corev1.Node{node(func(n *corev1.Node) { n.Status.Allocatable = list("cpu", "1", "memory", "5Pi") })},
			total: `{"cpu":"1","memory":"5Pi"}`, shut: `{}`,
		},
	} {
		if c.change != nil {
			c.change(c.profile)
		}
		got, err := Of(c.profile, c.nodes)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if c.id == "" {
			c.id = "2862972692226656278" // FNV-1a of /profile1
		}
		labels := map[string]string{
			protocol.LabelQuotaProfile: "profile1", protocol.LabelQuotaTreeID: c.id, protocol.LabelQuotaIsRoot: "true", protocol.LabelQuotaParent: protocol.QuotaRoot,
		}
		maps.Copy(labels, c.labels)
		annotations := map[string]string{protocol.AnnotationQuotaTotal: c.total, protocol.AnnotationQuotaUnschedulable: c.shut}
		if !reflect.DeepEqual(texts(got.Min), c.min) || !reflect.DeepEqual(texts(got.Max), c.max) ||
			!reflect.DeepEqual(got.Labels, labels) || !reflect.DeepEqual(got.Annotations, annotations) {
			t.Errorf("%s: min %v max %v labels %v annotations %v\nwant %v, %v, %v, %v", name, texts(got.Min), texts(got.Max), got.Labels, got.Annotations,
				c.min, c.max, labels, annotations)
		}
	}
}

// TestNothingOf: what cannot be read makes no quota, and says what it is.
func TestNothingOf(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*quotav1alpha1.ElasticQuotaProfile){
		"spec.nodeSelector: missing": func(p *quotav1alpha1.ElasticQuotaProfile) { p.Spec.NodeSelector = nil },
		"koordinator-system-quota":   func(p *quotav1alpha1.ElasticQuotaProfile) { p.Spec.QuotaName = protocol.QuotaSystem },
		"spec.resourceRatio: 33 characters": func(p *quotav1alpha1.ElasticQuotaProfile) {
			p.Spec.ResourceRatio = new("0." + strings.Repeat("5", 31))
		},
		`spec.resourceRatio: "2"`: func(p *quotav1alpha1.ElasticQuotaProfile) { p.Spec.ResourceRatio = new("2") },
		`resource-keys: "cpu", want names`: func(p *quotav1alpha1.ElasticQuotaProfile) {
			p.Annotations[protocol.AnnotationQuotaResourceKeys] = "cpu"
		},
		`resource-keys: "[]", want names of`: func(p *quotav1alpha1.ElasticQuotaProfile) { p.Annotations[protocol.AnnotationQuotaResourceKeys] = "[]" },
	} {
		p := profile1("")
		change(p)
		if _, err := Of(p, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
