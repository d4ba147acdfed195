// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package nodeslo writes each node's strategy, the NodeSLO of its name.
//
// Inputs are the strategy in force (cluster/slo/config), nodes and stored objects; output is the object's spec, of which the
// manager owns what the cluster's strategy says and nobody else has written. Fields in the spelling of the seed documents count as
// their canonical ones.
package nodeslo

import (
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/api/slo/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/ownership"
	"github.com/koord-rt/koord-rt/cluster/internal/pernode"
	"github.com/koord-rt/koord-rt/cluster/slo/config"
)

// Name of the controller, as --controllers has it.
const Name = "nodeslo"

// Options of the controller.
type Options = pernode.Options

// Add makes the controller.
func Add(mgr ctrl.Manager, o Options) error { return pernode.Add(mgr, kind(), o) }

func kind() pernode.Kind {
	return pernode.Kind{
		Name: Name, GVK: v1alpha1.GroupVersion.WithKind(slo.KindNodeSLO),
		New:    func() client.Object { return &v1alpha1.NodeSLO{} },
		Spec:   func(o client.Object) any { return o.(*v1alpha1.NodeSLO).Spec },
		Render: render,
		Held: map[string][]ownership.Path{
			config.KeyThreshold: {"/resourceUsedThresholdWithBE"}, config.KeyQOS: {"/resourceQOSStrategy"},
			config.KeyBurst: {"/cpuBurstStrategy"}, config.KeySystem: {"/systemStrategy"},
			config.KeyHostApplication: {"/hostApplications"},
		},
		Extensions: "/extensions",
		Alias:      canonical,
		Rules:      rules(),
	}
}

func render(c *config.Config, n config.Node) (any, []config.Problem) {
	spec, problems := c.NodeSLO(n)
	return v1alpha1.NodeSLOSpecOf(spec), problems
}

// spellings are fields of the seed documents, and what they are called canonically.
var spellings = map[ownership.Path]ownership.Path{
	"/resourceThresholdStrategy/enable":                                        "/resourceUsedThresholdWithBE/enable",
	"/resourceThresholdStrategy/thresholds/cpu-suppress-percent":               "/resourceUsedThresholdWithBE/cpuSuppressThresholdPercent",
	"/resourceThresholdStrategy/thresholds/cpu-evict-threshold-percent":        "/resourceUsedThresholdWithBE/cpuEvictPSIThresholdPercent",
	"/resourceThresholdStrategy/thresholds/memory-evict-threshold-percent":     "/resourceUsedThresholdWithBE/memoryEvictThresholdPercent",
	"/resourceThresholdStrategy/thresholds/memory-request-utilization-percent": "/resourceUsedThresholdWithBE/memoryRequestUtilizationPercent",
}

// canonical is the other name of a field that somebody wrote. A class has one blkioQOS, whole, in either spelling.
func canonical(p ownership.Path) []ownership.Path {
	if other, is := spellings[p]; is {
		return []ownership.Path{other}
	}
	if class, _, is := strings.Cut(p, "/blkIOQOS"); is && strings.HasPrefix(class, "/resourceQOSStrategy/") {
		return []ownership.Path{class + "/blkioQOS"}
	}
	return nil
}
