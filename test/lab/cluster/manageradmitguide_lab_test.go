// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// shownObject is a block of a page with YAML.
var shownObject = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")

// guide: every object of the API server that a page of docs/user shows is taken by strict validation and by the webhooks, as a dry run. What a
// page leaves out because it shows a part is filled in: it is of node a, or of the strategy.
func (a *admitted) guide(t *testing.T) {
	ctx := t.Context()
	if err := a.c.Namespace(ctx, "shop"); err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("../../../docs/user/*.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, page := range pages {
		for _, m := range shownObject.FindAllStringSubmatch(read(t, page), -1) {
			for doc := range strings.SplitSeq(m[1], "---\n") {
				o, err := cluster.ParseObject([]byte(doc))
				if err != nil {
					t.Fatalf("%s: %v in\n%s", page, err, doc)
				}
				if o.Str("apiVersion") == "koord-rt.dev/v1alpha1" || o.Str("kind") == "" {
					continue // a program's file, or what a pod has beside what was written
				}
				n++
				what := fmt.Sprintf("%s: %s", filepath.Base(page), o.Str("kind"))
				passes(t, what, func() error { return a.tryObject(ctx, whole(o)) })
			}
		}
	}
	if n < 11 {
		t.Errorf("only %d objects were found", n)
	}
}

// whole fills in what a page leaves out.
func whole(o cluster.Object) cluster.Object {
	name := map[string]any{"name": "a"}
	if o.Str("kind") == "ConfigMap" {
		name = map[string]any{"name": filepath.Base(strategies), "namespace": system}
	}
	for key, value := range map[string]any{"apiVersion": "v1", "metadata": name} {
		if o[key] == nil {
			o[key] = value
		}
	}
	return o
}

// strategiesPage: the ConfigMap of docs/user/manager.md as somebody applies it: it is admitted, each node's NodeSLO has what it says for the cluster, and a
// node of its pool lends less than another one. A wrong field prints what the page says.
func (a *admitted) strategiesPage(t *testing.T) {
	ctx := t.Context()
	page := read(t, "../../../docs/user/manager.md")
	blocks := shownObject.FindAllStringSubmatch(page, -1)
	if len(blocks) != 1 {
		t.Fatalf("%d YAML blocks", len(blocks))
	}
	text := blocks[0][1]
	if err := a.c.Admin().Delete(ctx, strategies, -1); err != nil { // of the tests before
		t.Fatal(err)
	}
	amounts := map[string]any{"cpu": "100", "memory": "100Gi", "pods": "100"}
	lent := map[string]string{"page-plain": "58k", "page-db": "38k"} // 100 CPUs × 60 % or 40 %, − 2 of the system
	for name := range lent {
		labels := map[string]any{}
		if name == "page-db" {
			labels["pool"] = "db"
		}
		node := cluster.Object{"metadata": map[string]any{"name": name, "labels": labels}, "status": map[string]any{"capacity": amounts, "allocatable": amounts}}
		if _, err := a.c.Admin().Create(ctx, "/api/v1/nodes", node); err != nil {
			t.Fatal(err)
		}
		used := map[string]any{"resources": map[string]any{"cpu": "2", "memory": "2Gi"}}
		report := map[string]any{"status": map[string]any{
			"updateTime": time.Now().UTC().Format(time.RFC3339), "nodeMetric": map[string]any{"nodeUsage": used, "systemUsage": used},
		}}
		passes(t, "a report", func() error { // once the manager has made the object
			_, err := a.c.Admin().Patch(ctx, reports+"/"+name+"/status", cluster.MergePatch, report)
			return err
		})
	}
	wrong := strings.Replace(text, "cpuSuppressThresholdPercent: 65", "cpuSuppressThresholdPercent: 650", 1)
	const says = keyThreshold + ": line 3: clusterStrategy.cpuSuppressThresholdPercent: out of range: 650, want 0..100"
	if !strings.Contains(page, says) {
		t.Errorf("the page does not say %q", says)
	}
	passes(t, "a wrong field", func() error {
		if _, said, err := a.printedOf(ctx, t, wrong, "apply"); err == nil || !strings.Contains(said, says) {
			return fmt.Errorf("printed %s, want %q", said, says)
		}
		return nil
	})
	file := filepath.Join(a.dir, "page.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := a.c.Kubectl(ctx, "apply", "-f", file); err != nil || out != "configmap/slo-controller-config created\n" {
		t.Fatalf("kubectl apply: %s, %v", out, err)
	}
	const want = `{"resourceQOSStrategy":{"beClass":{"memoryQOS":{"enable":true,"throttlingPercent":80}}},` +
		`"resourceUsedThresholdWithBE":{"cpuSuppressThresholdPercent":65,"enable":true}}`
	for name, batch := range lent {
		a.reads(t, slos+"/"+name, want, "spec")
		a.reads(t, "/api/v1/nodes/"+name, `"`+batch+`"`, "status", "allocatable", protocol.ResourceBatchCPU)
	}
}
