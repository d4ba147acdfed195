// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// Paths of what the demo looks at.
const (
	nodesPath   = "/api/v1/nodes/"
	slosPath    = "/apis/slo.koordinator.sh/v1alpha1/nodeslos/"
	metricsPath = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics/"
	podsPath    = "/api/v1/namespaces/" + shop + "/pods"
)

// await asks ten times a second until others have brought something about, and shows that it waits.
func (d *clustered) await(ctx context.Context, limit time.Duration, what string, check func() error) error {
	begun := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		passed := time.Since(begun)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case passed > limit:
			return fmt.Errorf("no %s within %s: %w", what, limit, err)
		case passed > time.Second:
			d.screen.live(fmt.Sprintf("  waiting for %s: %.0f s", what, passed.Seconds()))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// ready waits until a pod runs.
func (d *clustered) ready(ctx context.Context, name string) (out cluster.Object, err error) {
	err = d.await(ctx, time.Minute, "pod "+shop+"/"+name, func() error {
		if out, err = d.cluster.Admin().Get(ctx, podsPath+"/"+name); err == nil && out.Condition("Ready") != "True" {
			err = fmt.Errorf("it is %s: %s", out.Str("status", "phase"), out.Compact("status", "conditions"))
		}
		return err
	})
	return out, err
}

// apply applies a text as kubectl does, and shows it.
func (d *clustered) apply(ctx context.Context, text string, show bool) error {
	if show {
		d.screen.command("kubectl apply --server-side -f -")
		d.quote(text)
	}
	_, err := d.cluster.Admin().Apply(ctx, "user", false, []byte(text))
	return err
}

func (d *clustered) quote(text string) {
	for l := range strings.Lines(text) {
		d.screen.line("    %s", d.screen.paint(dim, strings.TrimRight(l, "\n")))
	}
}

// tell writes one key of slo-controller-config, shows it, and returns when it was written.
func (d *clustered) tell(ctx context.Context, key, text string) (time.Time, error) {
	d.screen.command("kubectl -n " + cluster.ManagerNamespace + " edit configmap slo-controller-config")
	d.quote(key + ": |\n  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  "))
	err := d.cluster.TellManager(ctx, map[string]string{key: text})
	return time.Now(), err
}

// cores is a quantity of an object in CPUs, where one has batch-cpu's unit a thousandth of it; NaN where there is none.
func cores(o cluster.Object, unit float64, at ...any) float64 {
	q, err := resource.ParseQuantity(o.Str(at...))
	if err != nil {
		return math.NaN()
	}
	return q.AsApproximateFloat64() / unit
}

// batchUnit is what one CPU is in batch-cpu.
const batchUnit = 1000

// batchCPU is what the node lends now, NaN for nothing.
func (d *clustered) batchCPU(ctx context.Context) (float64, error) {
	node, err := d.cluster.Admin().Get(ctx, nodesPath+d.node.Node)
	if err != nil {
		return 0, err
	}
	return cores(node, batchUnit, "status", "allocatable", protocol.ResourceBatchCPU), nil
}

// usage is what a NodeMetric tells of a pod, NaN where it does not.
func usage(metric cluster.Object, pod string) float64 {
	list, _ := metric.At("status", "podsMetric").([]any)
	i := slices.IndexFunc(list, func(p any) bool {
		m, ok := p.(map[string]any)
		return ok && m["namespace"] == shop && m["name"] == pod
	})
	if i < 0 {
		return math.NaN()
	}
	return cores(metric, 1, "status", "podsMetric", i, "podUsage", "resources", "cpu")
}

// lendOut: with colocation-config the node says what it has to lend.
func (d *clustered) lendOut(ctx context.Context) error {
	d.screen.title("1. Lend out what production does not use")
	if err := d.apply(ctx, webText(d.cpus), false); err != nil {
		return err
	}
	var err error
	if d.web, err = d.ready(ctx, "web"); err != nil {
		return err
	}
	d.step("pod shop/web (LS) asks for %d of %d CPUs and idles", max(d.cpus/2, 1), d.cpus)
	begun, err := d.tell(ctx, keyColocation, colocationText(d.lend))
	if err != nil {
		return err
	}
	var metric cluster.Object
	var lent float64
	err = d.await(ctx, 90*time.Second, "the node's report", func() error {
		if metric, err = d.cluster.Admin().Get(ctx, metricsPath+d.node.Node); err != nil {
			return err
		}
		if lent, err = d.batchCPU(ctx); err != nil {
			return err
		}
		if math.IsNaN(lent) || math.IsNaN(usage(metric, "web")) {
			return errors.New("the node has no batch-cpu, or no report of pod web")
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.step("%.1f s after the ConfigMap koordlet has reported and koord-manager has calculated", time.Since(begun).Seconds())
	d.screen.table([]string{"CPUs", "", "from"}, [][]string{
		{"the node has", amount(float64(d.cpus)), "of which " + strconv.Itoa(d.lend) + " % may be lent out"},
		{"outside of pods", amount(cores(metric, 1, "status", "nodeMetric", "systemUsage", "resources", "cpu")), "NodeMetric " + d.node.Node + ": control plane, kubelet, whatever else runs"},
		{"pod web uses", amount(usage(metric, "web")), "NodeMetric, though it asks for " + amount(float64(max(d.cpus/2, 1)))},
		{"batch-cpu", amount(lent), "status.allocatable of the node: what BE pods may ask for"},
	}, []string{"", bold + ";" + green, dim})
	if ask(int(lent*batchUnit)) == 0 {
		d.screen.line("  Other programs use this machine: next to nothing is left to lend. The rest is not shown; try again when it is quiet, or with")
		d.screen.line("  `go run ./test/demo -lend 250 cluster`, which lends what is not there.")
		return errBusy
	}
	return nil
}

// makeBatch: a profile turns a Deployment's pod into a best-effort one, which is placed by batch resources and held to them.
func (d *clustered) makeBatch(ctx context.Context) error {
	d.screen.title("2. A profile turns a Deployment's pods into best-effort ones")
	lent, err := d.batchCPU(ctx)
	if err != nil {
		return err
	}
	if err := d.apply(ctx, profileText, true); err != nil {
		return err
	}
	text := crunchText(max(ask(int(lent*batchUnit)), stepMilli), d.cpus)
	written, err := cluster.ParseObject([]byte(text))
	if err != nil {
		return err
	}
	template, _ := written.At("spec", "template").(map[string]any)
	if err := d.profileIsKnown(ctx, template); err != nil {
		return err
	}
	begun := time.Now()
	if err := d.apply(ctx, text, false); err != nil {
		return err
	}
	name := ""
	err = d.await(ctx, time.Minute, "the Deployment's pod", func() error {
		pods, err := d.cluster.Admin().Items(ctx, podsPath+"?labelSelector=app%3Dcrunch")
		if err == nil && len(pods) == 0 {
			err = errors.New("there is none")
		}
		if err == nil {
			name = pods[0].Str("metadata", "name")
		}
		return err
	})
	if err != nil {
		return err
	}
	if d.batch, err = d.ready(ctx, name); err != nil {
		return err
	}
	d.step("Deployment shop/crunch applied; its pod was admitted, placed by kube-scheduler on %s and ran after %.1f s",
		d.batch.Str("spec", "nodeName"), time.Since(begun).Seconds())
	d.screen.table([]string{"", "in the Deployment", "as admitted"}, admitted(template, d.batch), []string{dim, "", bold + ";" + green})
	if err := madeBatch(template, d.batch); err != nil {
		return err
	}
	return d.limits(ctx)
}

// profileIsKnown waits until a pod of the template would come out as a best-effort one: webhooks follow profiles by a watch.
func (d *clustered) profileIsKnown(ctx context.Context, template cluster.Object) error {
	pod := cluster.Object{"metadata": map[string]any{"name": "probe", "labels": template.At("metadata", "labels")}, "spec": template.At("spec")}
	return d.await(ctx, time.Minute, "the webhook", func() error {
		got, err := d.cluster.Admin().Create(ctx, podsPath+"?dryRun=All", pod)
		if err == nil && got.Str("metadata", "labels", protocol.LabelQoSClass) != "BE" {
			err = fmt.Errorf("a pod of the profile comes out with labels %s", got.Compact("metadata", "labels"))
		}
		return err
	})
}

// admitted compares a template with the pod that was made of it.
func admitted(template, pod cluster.Object) [][]string {
	var rows [][]string
	for _, l := range []struct {
		name string
		at   []any
	}{
		{"label qosClass", []any{"metadata", "labels", protocol.LabelQoSClass}}, {"priorityClassName", []any{"spec", "priorityClassName"}},
		{"priority", []any{"spec", "priority"}}, {"requests", []any{"spec", "containers", 0, "resources", "requests"}},
		{"limits", []any{"spec", "containers", 0, "resources", "limits"}},
	} {
		text := func(o cluster.Object) string {
			if o.At(l.at...) == nil {
				return "-"
			}
			return strings.NewReplacer(`"`, "", "{", "", "}", "", ",", ", ", ":", ": ").Replace(o.Compact(l.at...))
		}
		rows = append(rows, []string{l.name, text(template), text(pod)})
	}
	return rows
}

// limits shows what the kernel holds of the best-effort pod's container, and why.
func (d *clustered) limits(ctx context.Context) error {
	name := shop + "/" + d.batch.Str("metadata", "name")
	var settings []setting
	err := d.await(ctx, time.Minute, "the values of "+name, func() (err error) {
		settings, err = d.held(ctx, name)
		return err
	})
	if err != nil {
		return err
	}
	got := reading{}
	var rows [][]string
	for _, s := range sights(d.tree.V2()) {
		if !slices.Contains([]string{"cpu.shares", "cpu.weight", "cpu.cfs_quota_us", "cpu.max", "memory.limit_in_bytes", "memory.max"}, s.file) {
			continue
		}
		at := place{pod: name, container: "work", file: s.file}
		got.file(at, filepath.Join(d.podDir(d.batch, s.controller), containerOf(d.batch)))
		rows = append(rows, []string{s.file, human(s.file, got[at]), why(settings, at, s)})
	}
	d.step("read from the kernel, cgroup of the container:")
	d.screen.table([]string{"", "in the kernel", "why (koordctl explain)"}, rows, []string{"", bold + ";" + green, ""})
	return heldBy(got, place{pod: name, container: "work"}, d.batch)
}

// podDir is a pod's cgroup of a controller, containerOf the name of its first container's below it.
func (d *clustered) podDir(pod cluster.Object, controller string) string {
	mount := d.tree.Unified
	if !d.tree.V2() {
		mount = d.tree.Controllers[controller]
	}
	return filepath.Join(mount, d.node.CgroupRoot, "kubepods", strings.ToLower(pod.Str("status", "qosClass")), "pod"+pod.Str("metadata", "uid"))
}

func containerOf(pod cluster.Object) string {
	_, id, _ := strings.Cut(pod.Str("status", "containerStatuses", 0, "containerID"), "://")
	return id
}
