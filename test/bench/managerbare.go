// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// bareWriters are as many as koord-manager has (cluster/internal/pernode).
const bareWriters = 32

// bare makes the writes of a change of the strategy as koord-manager makes them, one server-side apply for each node, and nothing else: what is
// written is known, nothing is decided, watched or held back. It returns how long the last answer took. No writer that keeps who owns which
// field is faster beside this API server.
func (w *world) bare(ctx context.Context, value int) (time.Duration, error) {
	const of = sloPath + "/nodeslos/"
	stored, err := w.cluster.Admin().Get(ctx, of+nodeName(0))
	if err != nil {
		return 0, err
	}
	owner, err := applier(stored)
	if err != nil {
		return 0, err
	}
	spec, _ := stored.At("spec").(map[string]any)
	threshold, _ := spec["resourceUsedThresholdWithBE"].(map[string]any)
	if threshold == nil {
		return 0, errors.New("the NodeSLO has no strategy")
	}
	threshold["cpuSuppressThresholdPercent"] = value // nobody else writes here: all of the spec is koord-manager's
	begun := time.Now()
	err = w.each(ctx, bareWriters, w.b.o.manager.nodes, func(ctx context.Context, i int) error {
		_, err := w.cluster.Admin().Patch(ctx, of+nodeName(i)+"?fieldManager="+owner, cluster.ApplyPatch, map[string]any{
			"apiVersion": stored["apiVersion"], "kind": stored["kind"], "metadata": map[string]any{"name": nodeName(i)}, "spec": spec,
		})
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("write NodeSLOs by hand: %w", err)
	}
	return time.Since(begun), nil
}

// applier is who applies the fields of an object.
func applier(o cluster.Object) (string, error) {
	entries, _ := o.At("metadata", "managedFields").([]any)
	for i := range entries {
		if o.Str("metadata", "managedFields", i, "operation") == "Apply" {
			return o.Str("metadata", "managedFields", i, "manager"), nil
		}
	}
	return "", fmt.Errorf("nobody applies %s", o.Str("metadata", "name"))
}
