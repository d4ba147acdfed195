// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// nextVersion is one that no kind has yet.
const nextVersion = "v9"

// secondVersion: every kind can be moved to a second version of the same fields, with what is stored: both are served, objects are
// written anew, and the first version goes (CONTRIBUTING.md, Add a second version of a kind).
func (d *defined) secondVersion(ctx context.Context, t *testing.T) {
	const folder = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	list, err := d.c.Admin().Items(ctx, folder)
	if err != nil {
		t.Fatal(err)
	}
	type kind struct {
		crd, group, plural string // paths: the definition's, "/apis/GROUP/", "/PLURAL"
		first              string
		objects            map[string]cluster.Object // by name, and namespace where there is one
	}
	var kinds []*kind
	for _, crd := range list {
		versions, _ := crd.At("spec", "versions").([]any)
		if len(versions) != 1 {
			continue // which has two already
		}
		group := "/apis/" + crd.Str("spec", "group") + "/"
		k := &kind{
			crd: folder + "/" + crd.Str("metadata", "name"), group: group, plural: "/" + crd.Str("spec", "names", "plural"),
			first: crd.Str("spec", "versions", 0, "name"),
		}
		if k.objects, err = d.byName(ctx, group+k.first+k.plural); err != nil {
			t.Fatal(err)
		}
		first := versions[0].(map[string]any)
		next := maps.Clone(first)
		next["name"], first["storage"] = nextVersion, false
		if _, err := d.c.Admin().Patch(ctx, k.crd, cluster.MergePatch, map[string]any{"spec": map[string]any{"versions": []any{first, next}}}); err != nil {
			t.Fatalf("%s: %v", k.crd, err)
		}
		kinds = append(kinds, k)
	}
	moved := 0
	for _, k := range kinds {
		next := k.group + nextVersion + k.plural
		var got map[string]cluster.Object
		eventually(t, 20*time.Second, func() (err error) {
			got, err = d.byName(ctx, next)
			return err
		})
		if diff := cmp.Diff(k.objects, got); diff != "" {
			t.Errorf("%s as %s: %s", k.crd, nextVersion, diff)
		}
		for _, o := range got {
			path := k.group + nextVersion
			if ns := o.Str("metadata", "namespace"); ns != "" {
				path += "/namespaces/" + ns
			}
			d.rewrite(ctx, t, path+k.plural+"/"+o.Str("metadata", "name"))
			moved++
		}
		again, err := d.byName(ctx, k.group+k.first+k.plural)
		if diff := cmp.Diff(k.objects, again); err != nil || diff != "" {
			t.Errorf("%s as %s, after it was written as %s: %v %s", k.crd, k.first, nextVersion, err, diff)
		}
		crd, err := d.c.Admin().Patch(ctx, k.crd+"/status", cluster.MergePatch, map[string]any{"status": map[string]any{"storedVersions": []any{nextVersion}}})
		if err != nil {
			t.Fatalf("%s: %v", k.crd, err)
		}
		versions, _ := crd.At("spec", "versions").([]any)
		only := slices.DeleteFunc(versions, func(v any) bool { return v.(map[string]any)["name"] == k.first })
		if _, err := d.c.Admin().Patch(ctx, k.crd, cluster.MergePatch, map[string]any{"spec": map[string]any{"versions": only}}); err != nil {
			t.Errorf("%s: take %s away: %v", k.crd, k.first, err)
		}
	}
	for _, k := range kinds {
		eventually(t, 20*time.Second, func() error {
			got, err := d.byName(ctx, k.group+nextVersion+k.plural)
			if diff := cmp.Diff(k.objects, got); err == nil && diff != "" {
				return fmt.Errorf("%s without %s: %s", k.crd, k.first, diff)
			}
			return err
		})
		eventually(t, 20*time.Second, func() error {
			if _, err := d.c.Admin().Items(ctx, k.group+k.first+k.plural); err == nil {
				return fmt.Errorf("%s is served as %s still", k.crd, k.first)
			}
			return nil
		})
	}
	if len(kinds) < 12 || moved < 12 {
		t.Errorf("%d objects of %d kinds were moved", moved, len(kinds))
	}
}

// rewrite writes an object anew as the guide says. A replace that is not raw would write kubectl's own annotation anew, too, and the
// next apply would take away what that one then names.
func (d *defined) rewrite(ctx context.Context, t *testing.T, path string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "object.json")
	text, err := d.c.Kubectl(ctx, "get", "--raw", path)
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o600)
	}
	if err == nil {
		_, err = d.c.Kubectl(ctx, "replace", "--raw", path, "-f", file)
	}
	if err != nil {
		t.Errorf("write %s anew: %v", path, err)
	}
}

// byName are the objects below a path, without what changes with the version or a write.
func (d *defined) byName(ctx context.Context, path string) (map[string]cluster.Object, error) {
	items, err := d.c.Admin().Items(ctx, path)
	out := map[string]cluster.Object{}
	for _, o := range items {
		delete(o, "apiVersion")
		meta, _ := o.At("metadata").(map[string]any)
		delete(meta, "managedFields")
		delete(meta, "resourceVersion")
		out[o.Str("metadata", "namespace")+"/"+o.Str("metadata", "name")] = o
	}
	return out, err
}
