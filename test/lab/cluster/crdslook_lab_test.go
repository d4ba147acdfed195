// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/packaging/crds"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// everyDefinition are the definitions of packaging/crds by name.
func everyDefinition(t *testing.T) map[string]cluster.Object {
	t.Helper()
	files, err := fs.Glob(crds.Files, "*.yaml")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d definitions, %v", len(files), err)
	}
	out := map[string]cluster.Object{}
	for _, f := range files {
		text, err := fs.ReadFile(crds.Files, f)
		if err != nil {
			t.Fatal(err)
		}
		o, err := cluster.ParseObject(text)
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		out[o.Str("metadata", "name")] = o
	}
	return out
}

// quotaColumns are those of the documents (J21), the same in three groups.
const quotaColumns = "NAME MIN-CPU MAX-CPU HARD-CPU ALLOCATED-CPU USED-CPU MIN-MEMORY MAX-MEMORY HARD-MEMORY ALLOCATED-MEMORY USED-MEMORY" +
	" MIN-PODS MAX-PODS HARD-PODS ALLOCATED-PODS USED-PODS PRIORITY AGE"

// looks are what kubectl get shows: of an object of a kind the columns, and the words of its row that stay the same.
var looks = []struct{ of, what, head, row string }{
	{"nodeslos.slo.koordinator.sh", "node-001", "NAME IN-FORCE SINCE AGE", "node-001 True"},
	{"nodeslos.slo.koordinator.sh", "node-001 -o wide", "NAME IN-FORCE SINCE MESSAGE AGE", "node-001 True everything"},
	{"nodemetrics.slo.koordinator.sh", "node-001", "NAME CPU MEMORY BE-CPU BE-MEMORY UPDATED AGE", "node-001 20000m 20Gi"},
	{"reservations.scheduling.koordinator.sh", "spark-job-reservation-202401", "NAME PHASE AGE NODE TTL EXPIRES", "spark-job-reservation-202401 Available node-001 10m"},
	{"reservations.scheduling.koordinator.sh", "for-a-controller", "NAME PHASE AGE NODE TTL EXPIRES", "for-a-controller 0s 2030-01-01T00:00:00Z"},
	{
		"reservations.scheduling.koordinator.sh", "for-a-controller -o wide",
		"NAME PHASE AGE NODE TTL EXPIRES REASON", "for-a-controller Pending 0s 2030-01-01T00:00:00Z no-room",
	},
	{
		"teamelasticquotas.quota.koordinator.sh", "team-a-quota -n team-a",
		quotaColumns, "team-a-quota 50 200 100 150 120 50Gi 150Gi 100Gi 120Gi 100Gi 50 150 100 100 80 50",
	},
	{
		"koordelasticquotas.koordinator.sh", "test-quota",
		quotaColumns, "test-quota 2 8 4Gi 16Gi",
	},
	{
		"elasticquotas.scheduling.sigs.k8s.io", "root",
		quotaColumns, "root 10 40 20Gi 40Gi",
	},
	{
		"clustercolocationprofiles.config.koordinator.sh", "spark",
		"NAME QOS PRIORITYCLASS PRIORITY SCHEDULER PROBABILITY AGE", "spark BE koord-batch 1000 koord-scheduler",
	},
	{"recommendations.analysis.koordinator.sh", "shop", "NAME AGE TYPE KIND NAME PROVIDED LASTUPDATETIME", "shop workload Deployment shop"},
	{"recommendations.analysis.koordinator.sh", "shop -o wide", "NAME AGE TYPE KIND NAME PROVIDED REASON LASTUPDATETIME", "shop workload Deployment shop True Enough"},
	{"podmigrationjobs.scheduling.koordinator.sh", "move", "NAME PHASE STATUS AGE NODE RESERVATION PODNAMESPACE POD NEWPOD TTL", "move r default web-0 5m"},
	{"podgroups.scheduling.sigs.k8s.io", "gang", "NAME PHASE MIN-MEMBER SCHEDULED RUNNING SUCCEEDED FAILED AGE", "gang 2"},
	{"elasticquotaprofiles.quota.koordinator.sh", "pool", "NAME QUOTA RATIO AGE", "pool pool-root 0.9"},
	{"scheduleexplanations.scheduling.koordinator.sh", "why", "NAME QUESTION SCHEDULABLE AFTER-PREEMPTION UPDATED AGE", "why default/web-0"},
	{"devices.scheduling.koordinator.sh", "node-001", "NAME TYPE MODEL GPU-MODEL UNHEALTHY AGE", "node-001 gpu nvidia-a100"},
	{"devices.scheduling.koordinator.sh", "sick", "NAME TYPE MODEL GPU-MODEL UNHEALTHY AGE", "sick gpu A10 A100 GPU-2"},
	{"clusternetworktopologies.scheduling.koordinator.sh", "default", "NAME FIRST-LAYER ABOVE-NODES NODES AGE", "default SpineLayer BlockLayer 3"},
	{"noderesourcetopologies.topology.node.k8s.io", "zoned", "NAME POLICY ZONE-CPU ZONE-MEMORY AGE", "zoned SingleNUMANodePodLevel 4 8Gi"},
}

// looked are objects that the manifests have not.
const looked = `
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Device
metadata: {name: sick, labels: {node.koordinator.sh/gpu-model: A100}}
spec: {devices: [{type: gpu, id: GPU-1, health: true, labels: {model: A10}}, {type: gpu, id: GPU-2, health: false}]}
---
apiVersion: topology.node.k8s.io/v1alpha2
kind: NodeResourceTopology
metadata: {name: zoned}
topologyPolicies: [SingleNUMANodePodLevel]
zones:
- name: node-0
  type: Node
  resources: [{name: cpu, capacity: 5, allocatable: 4, available: 4}, {name: memory, capacity: 9Gi, allocatable: 8Gi, available: 8Gi}]
`

// columns: what kubectl get shows of every kind that is defined.
func (d *defined) columns(ctx context.Context, t *testing.T) {
	for _, of := range []string{"testdata/upstream", "testdata/manifests/m04-elasticquota-test.yaml"} {
		if _, err := d.c.Kubectl(ctx, "apply", "-f", of); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.apply(ctx, looked); err != nil {
		t.Fatal(err)
	}
	condition := func(kind, status, reason, message string) any {
		return map[string]any{"conditions": []any{map[string]any{
			"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-11-22T12:00:00Z",
		}}}
	}
	for path, status := range map[string]any{
		slos + "/node-001": condition("Applied", "True", "Applied", "everything"),
		"/apis/scheduling.koordinator.sh/v1alpha1/reservations/for-a-controller":         condition("Scheduled", "False", "Unschedulable", "no-room"),
		"/apis/analysis.koordinator.sh/v1alpha1/namespaces/default/recommendations/shop": condition("RecommendationProvided", "True", "Enough", "seen"),
		"/apis/scheduling.koordinator.sh/v1alpha1/clusternetworktopologies/default": map[string]any{"detailStatus": []any{
			map[string]any{"topologyInfo": map[string]any{"topologyLayer": "SpineLayer", "topologyName": "s0"}, "nodeNum": 2},
			map[string]any{"topologyInfo": map[string]any{"topologyLayer": "ClusterTopologyLayer", "topologyName": ""}, "nodeNum": 3},
		}},
	} {
		if _, err := d.c.Admin().Patch(ctx, path+"/status", cluster.MergePatch, map[string]any{"status": status}); err != nil {
			t.Fatal(err)
		}
	}
	unseen := everyDefinition(t)
	for _, c := range looks {
		delete(unseen, c.of)
		out, err := d.c.Kubectl(ctx, append([]string{"get", c.of}, strings.Fields(c.what)...)...)
		if err != nil {
			t.Errorf("%s %s: %v", c.of, c.what, err)
			continue
		}
		head, row, _ := strings.Cut(out, "\n")
		if got := strings.Join(strings.Fields(head), " "); got != c.head {
			t.Errorf("%s %s: columns %q, want %q", c.of, c.what, got, c.head)
		}
		values, shown := cells(head, row), 0
		var words []string
		for i, v := range values {
			if i > 0 && v != "" && !strings.HasPrefix(v, "<") { // as <unknown>
				shown++
			}
			if slices.Contains(strings.Fields(c.row), v) { // how long ago something was moves, and an empty column is no word
				words = append(words, v)
			}
		}
		if got := strings.Join(words, " "); got != c.row {
			t.Errorf("%s %s: row %q, want the words %q", c.of, c.what, row, c.row)
		}
		if shown == 0 {
			t.Errorf("%s %s: nothing is shown but name and age: %q", c.of, c.what, row)
		}
	}
	for name := range unseen {
		t.Errorf("%s: nobody looks at it: say in looks what kubectl get shows of one", name)
	}
}

// cells are the values of a row of kubectl's table, but that of its column AGE, which moves and can be the same word as another's: 0s.
func cells(head, row string) []string {
	var out []string
	starts := regexp.MustCompile(`\S+`).FindAllStringIndex(head, -1)
	for i, s := range starts {
		to := len(row)
		if i+1 < len(starts) {
			to = min(to, starts[i+1][0])
		}
		if head[s[0]:s[1]] != "AGE" {
			out = append(out, strings.TrimSpace(row[min(s[0], to):to]))
		}
	}
	return out
}

// names: every kind that is defined answers to each of its names, and to the one of all kinds. kubectl get elasticquota is the canonical group,
// whatever else is there; the others have names of their own. What is found is what [defined.columns] has made.
func (d *defined) names(ctx context.Context, t *testing.T) {
	all, err := d.c.Kubectl(ctx, "get", "koordinator", "-A", "-o", "name")
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range everyDefinition(t) {
		var called struct{ short, categories []any }
		called.short, _ = o.At("spec", "names", "shortNames").([]any)
		called.categories, _ = o.At("spec", "names", "categories").([]any)
		if len(called.short) == 0 {
			t.Errorf("%s has no short name", name)
		}
		of := strings.ToLower(o.Str("spec", "names", "kind")) + "." + o.Str("spec", "group") + "/"
		if has := strings.Contains("\n"+all, "\n"+of); has != slices.Contains(called.categories, any("koordinator")) {
			t.Errorf("%s: kubectl get koordinator has one: %v; categories %v", name, has, called.categories)
		}
		for _, n := range append([]any{o.At("spec", "names", "plural"), o.At("spec", "names", "singular")}, called.short...) {
			out, err := d.c.Kubectl(ctx, "get", n.(string), "-A", "-o", "name")
			if err != nil || out == "" {
				t.Errorf("kubectl get %s: %q, %v", n, out, err)
			}
			for line := range strings.Lines(out) {
				if !strings.HasPrefix(line, of) {
					t.Errorf("kubectl get %s has %q, want %s…", n, line, of)
				}
			}
		}
	}
	out, err := d.c.Kubectl(ctx, "explain", "nodeslo.spec.resourceQOSStrategy.beClass.memoryQOS.wmarkRatio")
	if err != nil || !strings.Contains(strings.Join(strings.Fields(out), " "), "percent of the limit at which") {
		t.Errorf("kubectl explain: %q, %v", out, err)
	}
}
