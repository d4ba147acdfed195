// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package nodemetric keeps a NodeMetric for every node, by which its agent knows what to measure and where to report.
//
// Inputs are the strategy in force (cluster/slo/config), nodes and stored objects; output is the object's spec: the node's name, as the documents
// have it, and the collect policy of colocation-config, also where colocation is off. The status is the node's.
package nodemetric

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/api/slo/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/ownership"
	"github.com/koord-rt/koord-rt/cluster/internal/pernode"
	"github.com/koord-rt/koord-rt/cluster/slo/config"
)

// Name of the controller, as --controllers has it.
const Name = "nodemetric"

// Options of the controller.
type Options = pernode.Options

// Add makes the controller.
func Add(mgr ctrl.Manager, o Options) error { return pernode.Add(mgr, kind(), o) }

func kind() pernode.Kind {
	return pernode.Kind{
		Name: Name, GVK: v1alpha1.GroupVersion.WithKind(slo.KindNodeMetric),
		New:    func() client.Object { return &v1alpha1.NodeMetric{} },
		Spec:   func(o client.Object) any { return o.(*v1alpha1.NodeMetric).Spec },
		Render: render,
		Held:   map[string][]ownership.Path{config.KeyColocation: {"/metricCollectPolicy"}},
		Alias:  canonical,
	}
}

// render is the node's name and the collect policy. What the node's annotations say wrong is told by the controller of its resources.
func render(c *config.Config, n config.Node) (any, []config.Problem) {
	s, _ := c.Colocation(n)
	aggregate, report := int64(s.Aggregate/time.Second), int64(s.Report/time.Second)
	windows := &v1alpha1.AggregatePolicy{}
	for _, w := range s.Windows {
		windows.Durations = append(windows.Durations, metav1.Duration{Duration: w})
	}
	return v1alpha1.NodeMetricSpec{NodeName: n.Name, MetricCollectPolicy: &v1alpha1.CollectPolicy{
		AggregateDurationSeconds: &aggregate, ReportIntervalSeconds: &report, NodeAggregatePolicy: windows, NodeMemoryCollectPolicy: &s.Memory,
	}}, nil
}

// canonical is the other name of a field that somebody wrote, in the spelling of the seed documents.
func canonical(p ownership.Path) []ownership.Path {
	if p == "/collectionIntervalSeconds" {
		return []ownership.Path{"/metricCollectPolicy/reportIntervalSeconds"}
	}
	return nil
}
