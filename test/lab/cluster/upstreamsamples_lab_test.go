// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// TestClusterUpstreamSamples: what upstream ships as samples, examples and manifests of its own tests, as it is published, applies under strict
// validation with our definitions and with koord-manager's webhooks, as kubectl does it from either side. testdata/upstream says the same in our
// own files, with what upstream has no sample of.
func TestClusterUpstreamSamples(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	source, err := parts.UpstreamSource(ctx)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := start(t, filepath.Join(dir, "cluster"))
	m := &managed{governed: &governed{colocated: &colocated{c: c}, outer: t, dir: dir}}
	if err := c.ApplyFolder(ctx, definitions); err != nil {
		t.Fatal(err)
	}
	m.install(ctx, t)
	if err := c.Namespace(ctx, "default"); err != nil {
		t.Fatal(err)
	}
	m.front = newFront(t, nil)
	m.replica(t)
	m.hook(t)
	var files []string
	for _, at := range []string{
		"config/samples/*.yaml", "examples/nginx/*.yaml", "examples/spark-jobs/cluster-*.yaml", "config/manager/koord-*.yaml", "config/manager/slo-*.yaml",
		"test/e2e/testing-manifests/scheduling/simple-*.yaml", "test/e2e/testing-manifests/slocontroller/*.yaml",
	} {
		found, err := filepath.Glob(filepath.Join(source, at))
		if err != nil || len(found) == 0 {
			t.Fatalf("nothing of upstream's in %s, %v", at, err)
		}
		files = append(files, found...)
	}
	seen := map[string]int{}
	for _, f := range files {
		name, err := filepath.Rel(source, f)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for doc := range strings.SplitSeq(upstreamFills.Replace(string(text)), "\n---") {
			o, err := cluster.ParseObject([]byte(doc))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if slices.Contains([]string{"Deployment", "ServiceAccount", "DaemonSet"}, o.Str("kind")) && strings.HasPrefix(name, "config/") {
				continue // how upstream's programs run
			}
			if err := m.appliesBothWays(ctx, t, doc, o); err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			seen[o.Str("kind")]++
		}
	}
	t.Logf("of upstream's files: %v", seen)
	for _, kind := range []string{"Recommendation", "Reservation", "NodeMetric", "ClusterColocationProfile", "PriorityClass", "ConfigMap", "Pod", "Deployment"} {
		if seen[kind] == 0 {
			t.Errorf("no %s of upstream's was applied", kind)
		}
	}
}

// appliesBothWays applies a text by a server-side dry run, and then for good from the client's side.
func (m *managed) appliesBothWays(ctx context.Context, t *testing.T, text string, o cluster.Object) error {
	t.Helper()
	apply := func(text []byte, how ...string) error {
		file := filepath.Join(t.TempDir(), "upstream.yaml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := m.c.Kubectl(ctx, append([]string{"apply", "--validate=strict", "-f", file}, how...)...)
		return err
	}
	server := []byte(text)
	if spec, has := o["spec"]; has && spec == nil { // a client-side apply takes it away; in a server-side one it is a null, which no schema takes
		o = maps.Clone(o)
		delete(o, "spec")
		var err error
		if server, err = json.Marshal(o); err != nil {
			t.Fatal(err)
		}
	}
	return errors.Join(apply(server, "--server-side", "--dry-run=server"), apply([]byte(text)))
}

// upstreamFills fills in what upstream's own tests do, and the namespace that its kustomization gives.
var upstreamFills = strings.NewReplacer(
	"{{.PauseImage}}", "pause", "{{.BusyBoxImage}}", "busybox", "namespace: system", "namespace: "+system,
)
