// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// documents: every manifest of the user's documents passes the webhooks. Their priority classes are taken over those that koord-manager's
// manifests have made, and the pod of theirs is a batch pod with its order in the class, which nobody can say wrong, or change.
func (a *admitted) documents(t *testing.T) {
	ctx := t.Context()
	for _, namespace := range []string{"default", "team-a", "critical-team", "batch-team"} {
		if err := a.c.Namespace(ctx, namespace); err != nil {
			t.Fatal(err)
		}
	}
	passes(t, "the refusal of another class's order", func() error { return a.refusesLabel(t) })
	files, err := filepath.Glob("testdata/manifests/*.yaml")
	if err != nil || len(files) < 19 {
		t.Fatalf("%d manifests of the documents, %v", len(files), err)
	}
	// A pod names its priority class, so that the classes come first.
	const classes = "testdata/manifests/m15-priorityclasses.yaml"
	files = append([]string{classes}, files...)
	ours := a.koordClasses(t)
	// A replace says all of an object, and what of a class must not change is refused.
	if _, err := a.c.Kubectl(ctx, "replace", "--dry-run=server", "-f", classes); err != nil {
		t.Errorf("the documents' priority classes in place of ours: %v", err)
	}
	var made []string
	t.Cleanup(func() {
		for _, path := range slices.Backward(made) {
			if err := a.c.Admin().Delete(ctxAfter(t), path, 0); err != nil {
				t.Error(err)
			}
		}
	})
	for _, file := range files {
		var objects []cluster.Object
		passes(t, file, func() (err error) {
			objects, err = a.c.Admin().Apply(ctx, "user", true, []byte(read(t, file)))
			if err != nil && !strings.Contains(err.Error(), "no PriorityClass with name") { // which the API server's own cache has a moment later
				t.Errorf("%s: %v", file, err)
				err = nil
			}
			return err
		})
		for _, o := range objects {
			path, err := a.c.Admin().Path(ctx, o)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(path, "/priorityclasses/koord-") {
				made = append(made, path)
			}
		}
	}
	if diff := cmp.Diff(ours, a.koordClasses(t)); diff != "" {
		t.Errorf("the documents' priority classes change more of ours than descriptions: %s", diff)
	}
	const nginx = "/api/v1/namespaces/default/pods/nginx"
	pod, err := a.c.Admin().Get(ctx, nginx)
	if err != nil {
		t.Fatal(err)
	}
	if pod.Int("spec", "priority") != 5000 || pod.Str("metadata", "labels", protocol.LabelPriority) != "5300" || pod.Str("spec", "priorityClassName") != "koord-batch" {
		t.Errorf("the pod of the documents: %s, priority %d", pod.Compact("metadata", "labels"), pod.Int("spec", "priority"))
	}
	order := func(value any) func() error {
		return func() error {
			labels := map[string]any{"metadata": map[string]any{"labels": map[string]any{protocol.LabelPriority: value}}}
			_, err := a.c.Admin().Patch(ctx, nginx+"?dryRun=All", cluster.MergePatch, labels)
			return err
		}
	}
	refused(t, "another order in the class", order("5400"), protocol.LabelPriority, `cannot be changed from "5300"`, "denied the request")
	refused(t, "no order any more", order(nil), protocol.LabelPriority, `cannot be changed from "5300"`, "denied the request")
	passes(t, "another label", func() error {
		_, err := a.c.Admin().Patch(ctx, nginx+"?dryRun=All", cluster.MergePatch, map[string]any{"metadata": map[string]any{"labels": map[string]any{"env": "other"}}})
		return err
	})
}

// koordClasses are the priority classes of koord-manager's manifests by name, without their descriptions and what every write changes.
func (a *admitted) koordClasses(t *testing.T) map[string]cluster.Object {
	t.Helper()
	list, err := a.c.Admin().Items(t.Context(), "/apis/scheduling.k8s.io/v1/priorityclasses")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]cluster.Object{}
	for _, o := range list {
		meta, _ := o.At("metadata").(map[string]any)
		for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
			delete(meta, field)
		}
		delete(o, "description")
		if name := o.Str("metadata", "name"); strings.HasPrefix(name, "koord-") {
			out[name] = o
		}
	}
	for name, value := range map[string]int{"koord-prod": 9000, "koord-mid": 7000, "koord-batch": 5000, "koord-free": 3000} {
		if o := out[name]; o.Int("value") != value || o.Str("preemptionPolicy") != "PreemptLowerPriority" || o.At("globalDefault") == true {
			t.Errorf("priority class %s: %v", name, o)
		}
	}
	return out
}
