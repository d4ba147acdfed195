// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// nodeRules: an annotation about amplification that means nothing is refused, and who writes a ratio by hand is told that it does not stay: the manager
// takes its own back, here the one that [admitted.amplification] has left in the ConfigMap.
func (a *admitted) nodeRules(t *testing.T) {
	ctx := t.Context()
	const node, ratio, raw = "/api/v1/nodes/a", protocol.AnnotationAmplificationRatio, protocol.AnnotationRawAllocatable
	annotated := func(key, value string) string { return "metadata: {annotations: {" + key + ": " + value + "}}" }
	made := func(key, value string) string {
		return "apiVersion: v1\nkind: Node\nmetadata: {name: ruled, annotations: {" + key + ": " + value + "}}\n"
	}
	const told = "annotation " + ratio + ": koord-manager takes another value than its own back, at its next look at the node: write the ratio into resource-amplification-config"
	const list = "annotation " + raw + ": no list of resources: koord-manager writes it, leave it out"
	a.judges(t, "vnode", []objectCase{
		{name: "a new node's ratio", text: made(ratio, `'{"cpu":0.5}'`), refused: []string{"annotation " + ratio + `: ratio 0.5 of "cpu", want 1 to 100: write ratios by resource, as {"cpu":1.5}`}},
		{name: "a ratio of all", path: node, change: annotated(ratio, "'2'"), refused: []string{"annotation " + ratio + ": ", `write ratios by resource, as {"cpu":1.5}`}},
		{name: "too much", path: node, change: annotated(ratio, `'{"cpu":101}'`), refused: []string{`ratio 101 of "cpu", want 1 to 100`}},
		{name: "a new node's amounts", text: made(raw, `'{"cpu":"ten"}'`), refused: []string{list}},
		{name: "amounts that mean nothing", path: node, change: annotated(raw, `'{"cpu":"ten"}'`), refused: []string{list}},
		{name: "a ratio by hand", path: node, change: annotated(ratio, `'{"cpu":3}'`), want: annotated(ratio, `'{"cpu":3}'`), warned: []string{told}},
		{name: "a new node's ratio by hand", text: made(ratio, `'{"cpu":3}'`), warned: []string{told}},
		{name: "no ratio", path: node, change: annotated(ratio, "null"), want: annotated(ratio, "null")},
		{name: "something else", path: node, change: annotated("a", "b"), want: annotated("a", "b")},
	})
	says := func(o cluster.Object) string {
		return o.Str("metadata", "annotations", ratio) + " " + o.Str("metadata", "annotations", raw) + " " + o.Compact("status", "allocatable")
	}
	was, err := a.c.Admin().Get(ctx, node)
	if err != nil || was.Str("metadata", "annotations", ratio) == "" {
		t.Fatalf("node a is not amplified: %v, %s", err, says(was))
	}
	for name, value := range map[string]any{"another": `{"cpu":3}`, "none": nil} {
		by := map[string]any{"metadata": map[string]any{"annotations": map[string]any{ratio: value}}}
		got, err := a.c.Admin().Patch(ctx, node, cluster.MergePatch, by)
		if want, _ := value.(string); err != nil || got.Str("metadata", "annotations", ratio) != want {
			t.Fatalf("%s by hand: %v, %s", name, err, says(got))
		}
		begun := time.Now()
		eventually(t, 20*time.Second, func() error {
			o, err := a.c.Admin().Get(ctx, node)
			if err == nil && says(o) != says(was) {
				err = fmt.Errorf("%s by hand: %s, want %s back", name, says(o), says(was))
			}
			return err
		})
		t.Logf("%s by hand is put back after %s", name, time.Since(begun).Round(time.Millisecond))
	}
}
