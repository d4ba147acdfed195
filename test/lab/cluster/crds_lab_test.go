// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

const definitions = "../../../packaging/crds"

// TestClusterControlPlaneCRDs: the definitions are taken by a real API server, every manifest of the documents and of upstream
// applies with kubectl's strict validation from either side, and what is wrong is refused in words that help.
func TestClusterControlPlaneCRDs(t *testing.T) {
	c := start(t, filepath.Join(t.TempDir(), "cluster"))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	begun := time.Now()
	if err := c.ApplyFolder(ctx, definitions); err != nil {
		t.Fatal(err)
	}
	t.Logf("definitions established after %s", time.Since(begun).Round(time.Millisecond))
	for _, ns := range []string{"default", "koordinator-system", "team-a", "critical-team", "batch-team"} {
		if err := c.Namespace(ctx, ns); err != nil {
			t.Fatal(err)
		}
	}
	d := &defined{c: c}
	d.served(ctx, t)
	t.Run("client-side", func(t *testing.T) { d.manifests(ctx, t, "--validate=strict") })
	t.Run("server-side", func(t *testing.T) { d.manifests(ctx, t, "--validate=strict", "--server-side") })
	t.Run("status", func(t *testing.T) { d.status(ctx, t) })
	t.Run("defaults", func(t *testing.T) {
		d.defaults(ctx, t)
		d.everyDefault(ctx, t)
	})
	t.Run("rules", func(t *testing.T) { d.rules(ctx, t) })
	t.Run("columns", func(t *testing.T) { d.columns(ctx, t) })
	t.Run("names", func(t *testing.T) { d.names(ctx, t) })
	t.Run("commands", func(t *testing.T) { d.commands(ctx, t) })
	t.Run("versions", func(t *testing.T) { d.versions(ctx, t) })
	t.Run("second version", func(t *testing.T) { d.secondVersion(ctx, t) })
}

// defined is a cluster with our definitions.
type defined struct {
	c *cluster.Cluster
}

// documents are the manifests of the user's documents and of upstream.
func documents(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/manifests/*.yaml")
	if err != nil || len(files) < 19 {
		t.Fatalf("%d manifests of the documents, %v", len(files), err)
	}
	more, err := filepath.Glob("testdata/upstream/*.yaml")
	if err != nil || len(more) < 7 {
		t.Fatalf("%d manifests of upstream, %v", len(more), err)
	}
	return append(files, more...)
}

// served waits until every kind is: that is a moment after its definition is established.
func (d *defined) served(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, f := range documents(t) {
		eventually(t, 20*time.Second, func() error {
			_, err := d.c.Admin().Path(ctx, object(t, strings.TrimPrefix(f, "testdata/")))
			return err
		})
	}
}

// manifests applies every file as a user does. One that follows another of the same object replaces it.
func (d *defined) manifests(ctx context.Context, t *testing.T, flags ...string) {
	// A pod names its priority class, so that the classes come first.
	files := append([]string{"testdata/manifests/m15-priorityclasses.yaml"}, documents(t)...)
	for _, f := range files {
		out, err := d.c.Kubectl(ctx, append([]string{"apply", "-f", f}, flags...)...)
		// A null is taken away by create, and stands in an apply of the server's, whatever the schema.
		if null := f == "testdata/upstream/nodemetric.yaml" && slices.Contains(flags, "--server-side"); null {
			if err == nil || !strings.Contains(err.Error(), "spec in body must be of type object") {
				t.Errorf("%s: %v", f, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", f, err)
		} else if !strings.Contains(out, "created") && !strings.Contains(out, "configured") && !strings.Contains(out, "serverside-applied") && !strings.Contains(out, "unchanged") {
			t.Errorf("%s: kubectl says %q", f, out)
		}
	}
	slices.Reverse(files)
	for _, f := range files {
		if _, err := d.c.Kubectl(ctx, "delete", "--wait=false", "--ignore-not-found", "--grace-period=0", "--force", "-f", f); err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
}

// object reads the first document of a file.
func object(t *testing.T, file string) cluster.Object {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n---")
	o, err := cluster.ParseObject([]byte(first))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// apply applies text by server-side apply with strict validation.
func (d *defined) apply(ctx context.Context, text string) error {
	_, err := d.c.Admin().Apply(ctx, "user", true, []byte(text))
	return err
}

// defaults: what is left out is filled in.
func (d *defined) defaults(ctx context.Context, t *testing.T) {
	if err := d.apply(ctx, read(t, "testdata/upstream/reservation.yaml")+"\n---\n"+read(t, "testdata/upstream/nodeslo.yaml")); err != nil {
		t.Fatal(err)
	}
	r, err := d.c.Admin().Get(ctx, "/apis/scheduling.koordinator.sh/v1alpha1/reservations/sample")
	if err != nil || r.Str("spec", "ttl") != "24h" || r.At("spec", "allocateOnce") != true {
		t.Errorf("reservation: %s, %v", r.Compact("spec"), err)
	}
	if r, err = d.c.Admin().Get(ctx, "/apis/scheduling.koordinator.sh/v1alpha1/reservations/for-a-controller"); err != nil ||
		r.Str("spec", "preAllocationPolicy", "mode") != "Default" || r.At("spec", "preAllocationPolicy", "enableMultiple") != false || r.Str("spec", "ttl") != "0s" {
		t.Errorf("reservation: %s, %v", r.Compact("spec"), err)
	}
	s, err := d.c.Admin().Get(ctx, slos+"/sample")
	net := []any{"spec", "resourceQOSStrategy", "beClass", "networkQOS"}
	if err != nil || s.Int(append(net, "ingressLimit")...) != 50 || s.Str(append(net, "egressLimit")...) != "500M" ||
		s.At(append(net, "ingressRequest")...) != 0.0 || s.At(append(net, "egressRequest")...) != 0.0 {
		t.Errorf("network: %s, %v", s.Compact(net...), err)
	}
	if s.At("spec", "extensions", "third.party/strategy", "any", 1) != 1.0 {
		t.Errorf("extensions: %s", s.Compact("spec", "extensions"))
	}
}

// everyDefault: each default of every definition is filled in, in an object, or its status, that has a place for each and says none.
func (d *defined) everyDefault(ctx context.Context, t *testing.T) {
	all := 0
	for name, crd := range everyDefinition(t) {
		versions, _ := crd.At("spec", "versions").([]any)
		for i := range versions {
			schema, _ := crd.At("spec", "versions", i, "schema", "openAPIV3Schema").(map[string]any)
			given, want, n := undefaulted(schema)
			if n == 0 {
				continue
			}
			all += n
			o := cluster.Object(given.(map[string]any))
			o["apiVersion"], o["kind"] = crd.Str("spec", "group")+"/"+crd.Str("spec", "versions", i, "name"), crd.At("spec", "names", "kind")
			o["metadata"] = map[string]any{"name": "undefaulted"}
			status := o["status"]
			delete(o, "status")
			got, err := d.filled(ctx, o, status)
			if err == nil {
				err = lacks(want, map[string]any(got), name)
			}
			if err != nil {
				t.Error(err)
			}
		}
	}
	if all < 37 { // what is taken out of a definition is not looked for above
		t.Errorf("%d defaults were read back", all)
	}
}

// filled is an object as it is stored, with its status.
func (d *defined) filled(ctx context.Context, o cluster.Object, status any) (cluster.Object, error) {
	at, err := d.c.Admin().Path(ctx, o)
	if err != nil {
		return nil, err
	}
	if _, err := d.c.Admin().Create(ctx, path.Dir(at)+"?fieldValidation=Strict", o); err != nil {
		return nil, err
	}
	if status != nil {
		if _, err := d.c.Admin().Patch(ctx, at+"/status?fieldValidation=Strict", cluster.MergePatch, map[string]any{"status": status}); err != nil {
			return nil, err
		}
	}
	got, err := d.c.Admin().Get(ctx, at)
	if err != nil {
		return nil, err
	}
	return got, d.c.Admin().Delete(ctx, at, -1)
}

// undefaulted is the least value of a schema that has a place for each of its defaults, without these and with them, and how many there are. Of what is required beside them
// it knows what our definitions require: another one is refused, and has to be added.
func undefaulted(s map[string]any) (given, want any, defaults int) {
	if d, is := s["default"]; is {
		return nil, d, 1
	}
	if items, is := s["items"].(map[string]any); is {
		given, want, n := undefaulted(items)
		return []any{given}, []any{want}, n
	}
	if each, is := s["additionalProperties"].(map[string]any); is {
		given, want, n := undefaulted(each)
		return map[string]any{"x": given}, map[string]any{"x": want}, n
	}
	properties, is := s["properties"].(map[string]any)
	if !is && s["type"] != "object" {
		return 1, 1, 0
	}
	without, with := map[string]any{}, map[string]any{}
	required, _ := s["required"].([]any)
	for name, of := range properties {
		given, want, n := undefaulted(of.(map[string]any))
		if n == 0 && !slices.Contains(required, any(name)) {
			continue
		}
		with[name] = want
		if given != nil {
			without[name] = given
		}
		defaults += n
	}
	return without, with, defaults
}

// versions: a NodeResourceTopology is stored as v1alpha2, whose readers find what was written as v1alpha1; and what only v1alpha2 has, as
// NFD's topology updater writes it, outlives a patch as v1alpha1, which koordlet's and koord-manager's are.
func (d *defined) versions(ctx context.Context, t *testing.T) {
	const topologies = "/apis/topology.node.k8s.io/"
	zone := map[string]any{"name": "node-0", "type": "Node", "resources": []any{
		map[string]any{"name": "cpu", "capacity": "4", "allocatable": "4", "available": "4"},
	}}
	_, err := d.c.Admin().Create(ctx, topologies+"v1alpha1/noderesourcetopologies?fieldValidation=Strict", cluster.Object{
		"apiVersion": "topology.node.k8s.io/v1alpha1", "kind": "NodeResourceTopology", "metadata": map[string]any{"name": "n"},
		"topologyPolicies": []any{"None"}, "zones": []any{zone},
	})
	if err != nil {
		t.Fatal(err)
	}
	o, err := d.c.Admin().Get(ctx, topologies+"v1alpha2/noderesourcetopologies/n")
	if err != nil || o.Str("topologyPolicies", 0) != "None" || o.Str("zones", 0, "resources", 0, "allocatable") != "4" {
		t.Errorf("%v, %v", o, err)
	}
	_, err = d.c.Admin().Create(ctx, topologies+"v1alpha2/noderesourcetopologies?fieldValidation=Strict", cluster.Object{
		"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": map[string]any{"name": "nfd"},
		"zones": []any{zone}, "attributes": []any{map[string]any{"name": "topologyManagerPolicy", "value": "single-numa-node"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	patch := map[string]any{"metadata": map[string]any{"annotations": map[string]any{"lab": "patched"}}, "zones": []any{zone, zone}}
	if _, err := d.c.Admin().Patch(ctx, topologies+"v1alpha1/noderesourcetopologies/nfd", cluster.MergePatch, patch); err != nil {
		t.Fatal(err)
	}
	o, err = d.c.Admin().Get(ctx, topologies+"v1alpha2/noderesourcetopologies/nfd")
	if err != nil || o.Str("metadata", "annotations", "lab") != "patched" || o.Str("attributes", 0, "value") != "single-numa-node" {
		t.Errorf("after a patch as v1alpha1: attributes %s, %v", o.Compact("attributes"), err)
	}
}
