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
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// suppress: a change of the ConfigMap is in the kernel in seconds, and NodeSLO.status says so.
func (d *clustered) suppress(ctx context.Context) error {
	d.screen.title("3. From a ConfigMap to the kernel")
	class := &meter{tree: d.tree, class: filepath.Dir(d.podDir(d.batch, "cpu"))}
	before, err := class.allowed()
	if err != nil {
		return err
	}
	begun, err := d.tell(ctx, keyThreshold, thresholdText)
	if err != nil {
		return err
	}
	slo, err := d.seen(ctx, time.Minute, slosPath+d.node.Node, "NodeSLO with the strategy", func(o cluster.Object) bool {
		return o != nil && o.Int("spec", "resourceUsedThresholdWithBE", "cpuSuppressThresholdPercent") == 80
	})
	if err != nil {
		return err
	}
	written := time.Since(begun)
	var may float64
	err = poll(ctx, time.Minute, func() error {
		if may, err = class.allowed(); err == nil && math.IsInf(may, 1) {
			err = fmt.Errorf("%s of the best-effort class is not set", class.quotaFile())
		}
		return err
	})
	if err != nil {
		return err
	}
	kernel := time.Since(begun)
	if _, err = d.seen(ctx, time.Minute, slosPath+d.node.Node, "status of the NodeSLO", func(o cluster.Object) bool {
		return o.Int("status", "observedGeneration") >= slo.Int("metadata", "generation") && o.Condition("Applied") == "True"
	}); err != nil {
		return err
	}
	said := time.Since(begun)
	d.screen.table([]string{"seconds after the ConfigMap", "", ""}, [][]string{
		{"NodeSLO " + d.node.Node, fmt.Sprintf("%.2f", written.Seconds()), "written by koord-manager"},
		{"the kernel", fmt.Sprintf("%.2f", kernel.Seconds()),
			fmt.Sprintf("%s of kubepods/besteffort: %s CPUs, before %s", class.quotaFile(), amount(may), amount(before))},
		{"NodeSLO's status", fmt.Sprintf("%.2f", said.Seconds()), "Applied, written by koordlet"},
	}, []string{"", bold + ";" + green, ""})
	d.screen.line("  From here on the class has the quota; its pods share it and have none of their own.")
	return nil
}

// seen polls an object with a limit.
func (d *clustered) seen(ctx context.Context, limit time.Duration, path, what string, ok func(cluster.Object) bool) (cluster.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return d.cluster.Admin().Wait(ctx, path, what, ok)
}

// loadComesAndGoes: the best-effort class yields at once, the node lends less with its next reports, and both come back.
func (d *clustered) loadComesAndGoes(ctx context.Context) error {
	d.screen.title("4. Load comes to the LS pod, and goes")
	m := &meter{
		tree: d.tree, ls: d.podDir(d.web, "cpuacct"), be: d.podDir(d.batch, "cpuacct"), class: filepath.Dir(d.podDir(d.batch, "cpu")),
		began: time.Now(), pods: "web (LS) and crunch (BE)",
		lent: func() (float64, error) {
			lent, err := d.batchCPU(ctx)
			if err == nil && math.IsNaN(lent) {
				err = errors.New("the node has lost its batch-cpu: is koordlet's report too old?")
			}
			return lent, err
		},
	}
	if _, err := m.read(); err != nil {
		return err
	}
	enough := float64(d.cpus) * room
	calm, err := d.decided(ctx, m, enough)
	if err != nil {
		return err
	}
	if calm < enough {
		d.screen.line("  Other programs use this machine: BE has next to nothing before any load comes, so it has nothing to yield.")
		d.screen.line("  Not shown; try again when the machine is quiet.")
		return errBusy
	}
	d.step("LS, BE and system may use 80 %% of %d CPUs together; BE may use %s. Up to %.0f minutes: the node reports twice a minute",
		d.cpus, amount(calm), math.Ceil((2 * mostLent * every).Minutes()))
	rec, err := d.record(ctx, m, &recording{lends: true, enough: enough}, who{"web/serve (LS)", containerOf(d.web)}, max(d.cpus/2, 1))
	if err != nil {
		return err
	}
	d.report(ctx, rec, m)
	d.screen.line("")
	rec.spendingTable(d.screen, d.cpus)
	return d.judged(rec)
}
