// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/lab/cluster/exercise"
	"github.com/koord-rt/koord-rt/test/lab/host"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// start starts a control plane; flags are more of the API server.
func start(t *testing.T, dir string, flags ...string) *cluster.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Minute) // a cold cache builds
	defer cancel()
	cache, err := parts.Open(parts.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{parts.Etcd, parts.KubeAPIServer} { // not part of the time below
		if _, err := cache.Get(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	c, err := cluster.Start(ctx, cluster.Options{Dir: dir, Cache: cache, APIServerArgs: flags})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the cluster's folder is left: %v", err)
		}
	})
	etcd, api := c.Pids()
	t.Logf("control plane ready after %s; resident: etcd %d MiB, kube-apiserver %d MiB",
		time.Since(begun).Round(time.Millisecond), cluster.ResidentMiB(etcd), cluster.ResidentMiB(api))
	return c
}

func TestClusterControlPlane(t *testing.T) {
	// Webhooks of Services are called where their endpoints are: nothing routes the Services' own addresses.
	c := start(t, filepath.Join(t.TempDir(), "cluster"), "--enable-aggregator-routing=true")
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute) // two starts of an API server may take three minutes each
	defer cancel()
	if err := c.Namespace(ctx, "web"); err != nil {
		t.Fatal(err)
	}
	t.Run("rbac", func(t *testing.T) { checkRBAC(ctx, t, c) })
	t.Run("watch", func(t *testing.T) { checkWatch(ctx, t, c) })
	t.Run("apply", func(t *testing.T) { checkApply(ctx, t, c) })
	t.Run("restart", func(t *testing.T) {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			if err := c.EndAPIServer(sig); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Admin().Get(ctx, "/api/v1/namespaces/web"); err == nil {
				t.Error("an ended API server answered")
			}
			if err := c.StartAPIServer(ctx); err != nil {
				t.Fatal(err)
			}
			if o, err := c.Admin().Get(ctx, "/api/v1/namespaces/web"); err != nil || o.Str("metadata", "name") != "web" {
				t.Errorf("after the restart: %v, %v", o, err)
			}
		}
	})
	t.Run("install", func(t *testing.T) { checkInstall(ctx, t, c) })
}

func checkRBAC(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	jane, err := c.As("jane", "developers")
	if err != nil {
		t.Fatal(err)
	}
	const maps = "/api/v1/namespaces/web/configmaps"
	if _, err := jane.Get(ctx, maps); !cluster.Refused(err, "Forbidden") {
		t.Errorf("a user without a role reads: %v", err)
	}
	const role = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: web}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: web}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: developers}]
`
	if _, err := c.Admin().Apply(ctx, "lab", false, []byte(role)); err != nil {
		t.Fatal(err)
	}
	passes(t, "a user with a role reads", func() error {
		list, err := jane.Items(ctx, maps)
		if err == nil && (len(list) != 1 || list[0].Str("metadata", "name") != "kube-root-ca.crt") {
			err = fmt.Errorf("it is shown %v", list)
		}
		return err
	})
	if _, err := jane.Create(ctx, maps, cluster.Object{"metadata": map[string]any{"name": "x"}}); !cluster.Refused(err, "Forbidden") {
		t.Errorf("a reader writes: %v", err)
	}
}

func checkWatch(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	const maps = "/api/v1/namespaces/web/configmaps"
	list, err := c.Admin().Get(ctx, maps)
	if err != nil {
		t.Fatal(err)
	}
	one := cluster.Object{"metadata": map[string]any{"name": "one"}, "data": map[string]any{"k": "1"}}
	if _, err := c.Admin().Create(ctx, maps, one); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Admin().Patch(ctx, maps+"/one", cluster.MergePatch, map[string]any{"data": map[string]any{"k": "2"}}); err != nil {
		t.Fatal(err)
	}
	if err := c.Admin().Delete(ctx, maps+"/one", -1); err != nil {
		t.Fatal(err)
	}
	var seen []string
	err = c.Admin().Watch(ctx, maps+"?resourceVersion="+list.Str("metadata", "resourceVersion"), func(e cluster.Event) bool {
		seen = append(seen, e.Type+" "+e.Object.Str("data", "k"))
		return len(seen) < 3
	})
	if want := "ADDED 1,MODIFIED 2,DELETED 2"; err != nil || strings.Join(seen, ",") != want {
		t.Errorf("watched %v, %v; want %s", seen, err, want)
	}
	if err := c.Admin().Delete(ctx, maps+"/one", -1); err != nil {
		t.Errorf("delete what is gone: %v", err)
	}
}

func checkApply(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	text := func(v string) []byte {
		return []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: two, namespace: web}\ndata: {k: '" + v + "'}\n")
	}
	if _, err := c.Admin().Apply(ctx, "first", false, text("1")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Admin().Apply(ctx, "second", false, text("2")); !cluster.Refused(err, "Conflict") {
		t.Errorf("a second manager took a field over: %v", err)
	}
	if got, err := c.Admin().Apply(ctx, "second", true, text("2")); err != nil || got[0].Str("data", "k") != "2" {
		t.Errorf("by force: %v, %v", got, err)
	}
	bad := []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: three, namespace: web}\ndate: {}\n")
	if _, err := c.Admin().Apply(ctx, "first", false, bad); err == nil {
		t.Error("an unknown field was accepted")
	}
}

// startHost starts containerd 2.4 with a pod network and without NRI, and builds the parts that a test needs.
func startHost(ctx context.Context, t *testing.T, need ...string) *host.Host {
	t.Helper()
	return startHostWith(ctx, t, host.Options{DisableNRI: true}, need...)
}

// startHostWith starts a host with these options, a pod network and the parts' cache. Its runtime waits half a minute for a plugin: one without a CPU
// is not to be dropped, which is shown elsewhere.
func startHostWith(ctx context.Context, t *testing.T, o host.Options, need ...string) *host.Host {
	t.Helper()
	cache, err := parts.Open(parts.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range need {
		if _, err := cache.Get(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	o.Cache, o.RequestTimeout, o.RegisterTimeout = cache, 30*time.Second, 30*time.Second
	if o, err = cluster.WithCNI(ctx, cache, o); err != nil {
		t.Fatal(err)
	}
	h, err := host.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	dir := h.Dir
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the host's folder is left: %v", err)
		}
	})
	return h
}

func TestClusterNode(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Minute)
	defer cancel()
	h := startHost(ctx, t, parts.Kubelet, parts.Kubectl)
	c := start(t, filepath.Join(h.Dir, "cluster"))
	exercise.Run(t, c, exercise.Options{
		Kubelet: cluster.KubeletOptions{Runtime: h.Socket, CgroupRoot: h.Cgroup},
	})
}
