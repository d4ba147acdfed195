// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package exercise is what a node must be able to do, asked through the API server of a
// real cluster: pods of every class, exec, logs, port-forward, probes, in-place resize, evented
// PLEG, a kubelet restart. Run it against a runtime and against a proxy in front of it.
//
// Input: a cluster and a CRI socket with parts.ImageRef. Output: subtests. It must not
// import any package under test.
package exercise

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// Options of Run.
type Options struct {
	Kubelet   cluster.KubeletOptions // Runtime and CgroupRoot required; EventedPLEG is switched on
	Namespace string                 // optional: default exercise
	Labels    map[string]string      // optional: of every pod
	// WhileDown, optional, is called while the kubelet is down: kill a proxy, restart a runtime ...
	WhileDown func(t *testing.T)
}

// node is one run: a kubelet and a namespace.
type node struct {
	c       *cluster.Cluster
	k       *cluster.Kubelet
	ns      string
	labels  map[string]string
	tree    cgroups.Tree
	options Options
}

// Run starts a kubelet on the socket, runs every subtest, and leaves nothing behind.
func Run(t *testing.T, c *cluster.Cluster, o Options) {
	t.Helper()
	if o.Namespace == "" {
		o.Namespace = "exercise"
	}
	gates := map[string]bool{"EventedPLEG": true}
	for name, on := range o.Kubelet.FeatureGates {
		gates[name] = on
	}
	o.Kubelet.FeatureGates = gates
	tree, err := cgroups.Detect()
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	k, err := c.StartKubelet(t.Context(), o.Kubelet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	t.Logf("node %s Ready after %s; kubelet resident %d MiB", k.Node, time.Since(begun).Round(time.Millisecond), cluster.ResidentMiB(k.Pid()))
	if err := c.Namespace(t.Context(), o.Namespace); err != nil {
		t.Fatal(err)
	}
	n := &node{c: c, k: k, ns: o.Namespace, labels: o.Labels, tree: tree, options: o}
	t.Run("classes", n.classes)
	t.Run("exec", n.exec)
	t.Run("logs", n.logs)
	t.Run("port-forward", n.portForward)
	t.Run("probes", n.probes)
	t.Run("resize", n.resize)
	t.Run("evented-pleg", n.eventedPLEG)
	t.Run("restart", n.restart)
	t.Run("delete", n.remove)
}

// limit bounds every wait of a subtest. It is less than the 300 s between two relists with evented PLEG.
const limit = 3 * time.Minute

func (n *node) path(kind, name string) string {
	return "/api/v1/namespaces/" + n.ns + "/" + kind + "/" + name
}

// create makes a pod of one container "main" from a YAML text of its container's fields.
func (n *node) create(t *testing.T, name, container string) {
	t.Helper()
	pod, err := n.pod(name, container)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.c.Admin().Create(t.Context(), n.path("pods", ""), pod); err != nil {
		t.Fatal(err)
	}
}

// pod is what create makes: bound to the node, with an image that is not pulled, and gone a second after it is told to.
func (n *node) pod(name, container string) (cluster.Object, error) {
	main, err := cluster.ParseObject([]byte(container))
	if err != nil {
		return nil, err
	}
	main["name"], main["image"], main["imagePullPolicy"] = "main", image, "Never"
	return cluster.Object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": name, "labels": n.labels},
		"spec": map[string]any{
			"nodeName": n.k.Node, "dnsPolicy": "Default", "terminationGracePeriodSeconds": 1,
			"containers": []any{main},
		},
	}, nil
}

// wait polls a pod.
func (n *node) wait(t *testing.T, name, what string, ok func(cluster.Object) bool) cluster.Object {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	pod, err := n.c.Admin().Wait(ctx, n.path("pods", name), what, ok)
	if err != nil {
		t.Fatalf("%v\nevents:\n%s", err, n.events(t, name))
	}
	return pod
}

func (n *node) ready(t *testing.T, name string) cluster.Object {
	t.Helper()
	return n.wait(t, name, name+" ready", func(p cluster.Object) bool { return p.Condition("Ready") == "True" })
}

func (n *node) events(t *testing.T, pod string) string {
	t.Helper()
	list, err := n.c.Admin().Items(t.Context(), n.path("events", "")+"?fieldSelector=involvedObject.name="+pod)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, e := range list {
		fmt.Fprintf(&b, "%s: %s\n", e.Str("reason"), e.Str("message"))
	}
	return b.String()
}

// status is the place of the only container's status.
func status(steps ...any) []any {
	return append([]any{"status", "containerStatuses", 0}, steps...)
}

// containerID without the runtime's name.
func containerID(pod cluster.Object) string {
	_, id, _ := strings.Cut(pod.Str(status("containerID")...), "://")
	return id
}

// read reads a control file of the pod's container from the hierarchy of a controller.
func (n *node) read(pod cluster.Object, controller, file string) (string, error) {
	class := map[string]string{"Burstable": "burstable/", "BestEffort": "besteffort/"}[pod.Str("status", "qosClass")]
	mount := n.tree.Unified
	if !n.tree.V2() {
		mount = n.tree.Controllers[controller]
	}
	dir := filepath.Join(mount, n.k.CgroupRoot, "kubepods", class+"pod"+pod.Str("metadata", "uid"), containerID(pod))
	return cgroups.Read(dir, file)
}

// want compares a control file, written "file=value", in each cgroup version's spelling.
func (n *node) want(t *testing.T, pod cluster.Object, controller, v1, v2 string) {
	t.Helper()
	if err := n.check(pod, controller, v1, v2); err != nil {
		t.Error(err)
	}
}

func (n *node) check(pod cluster.Object, controller, v1, v2 string) error {
	want := v1
	if n.tree.V2() {
		want = v2
	}
	file, value, _ := strings.Cut(want, "=")
	got, err := n.read(pod, controller, file)
	if err == nil && got != value {
		err = errors.New("another value")
	}
	if err != nil {
		return fmt.Errorf("%s of %s: %q, want %q: %w", file, pod.Str("metadata", "name"), got, value, err)
	}
	return nil
}

// object is short for the tests' conditions.
type object = cluster.Object

// waitNoCgroup waits until no control group of the pod is left.
func (n *node) waitNoCgroup(ctx context.Context, uid string) error {
	for {
		var left []string
		for _, m := range n.tree.Mounts() {
			dirs, err := cgroups.Dirs(filepath.Join(m, n.k.CgroupRoot))
			if err != nil {
				return err
			}
			for _, d := range dirs {
				if strings.Contains(d, uid) {
					left = append(left, d)
				}
			}
		}
		if len(left) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("control groups of a deleted pod are left: %v", left)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
