// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// halves: a user overrides one of two fields that the API server checks against each other. What the cluster says of the other one is left out while it
// does not go with the user's, told, and holds up no other key; it comes when it goes with it.
func (n *simulated) halves(t *testing.T) {
	const name = "node-002"
	lower := func(more string) {
		t.Helper()
		n.tell(t, map[string]string{keyThreshold: `{"clusterStrategy": {"enable": true, "memoryEvictThresholdPercent": 80` + more + `}}`})
	}
	upper := func(value any) {
		t.Helper()
		if _, err := n.c.Admin().Patch(t.Context(), slos+"/"+name, cluster.MergePatch, map[string]any{"spec": threshold(map[string]any{"memoryEvictThresholdPercent": value})}); err != nil {
			t.Fatal(err)
		}
	}
	lower("")
	n.becomes(t, slos+"/"+name, "NodeSLO with the cluster's threshold", func(o cluster.Object) bool { return percent(o, "memoryEvictThresholdPercent") == 80 })
	upper(60)
	lower(`, "memoryEvictLowerPercent": 75`)
	n.becomes(t, slos+"/"+documented, "other NodeSLO with both", func(o cluster.Object) bool { return percent(o, "memoryEvictLowerPercent") == 75 })
	n.tell(t, map[string]string{keyBurst: burstConfig(321)})
	n.follows(t, name, 321, `{"enable":true,"memoryEvictThresholdPercent":60}`)
	n.logs(t, keyThreshold+": resourceUsedThresholdWithBE.memoryEvictLowerPercent: left out: memoryEvictLowerPercent 75 is not below memoryEvictThresholdPercent 60")
	n.running.shows(t, 30*time.Second, `slo_controller_nodeslo_spec_parse_count\{reason="yielded",status="failed"\} [1-9]\d*`)
	lower(`, "memoryEvictLowerPercent": 55`)
	n.becomes(t, slos+"/"+name, "NodeSLO with a lower threshold that goes with the user's", func(o cluster.Object) bool {
		return percent(o, "memoryEvictLowerPercent") == 55 && percent(o, "memoryEvictThresholdPercent") == 60
	})
	upper(nil)
	n.becomes(t, slos+"/"+name, "NodeSLO without the override", func(o cluster.Object) bool {
		return percent(o, "memoryEvictLowerPercent") == 55 && percent(o, "memoryEvictThresholdPercent") == 80
	})
	n.neverRefused(t)
}

// documents: the documents' NodeSLOs M5 and M6a stand as overrides, each field in the spelling in which it is written, and the cluster's strategy is added
// beside them. Where the manager was first with another value, M5 is refused with both names. M6b, told as the ConfigMap, makes what M6a says.
func (n *simulated) documents(t *testing.T) {
	const m5, m6a = "testdata/manifests/m05-nodeslo.yaml", "testdata/manifests/m06a-nodeslo-memory-tuning.yaml"
	n.anew(t, nil)
	n.put(t, read(t, m5))
	n.knows(t, 320)
	thresholds := `{"clusterStrategy": {"enable": false, "cpuSuppressThresholdPercent": 60, "cpuEvictThresholdPercent": 90,
  "memoryEvictThresholdPercent": 80, "memoryEvictLowerPercent": 72}}`
	n.tell(t, map[string]string{keyThreshold: thresholds, keyBurst: burstConfig(322), keyQOS: `{"clusterStrategy": {
  "lsrClass": {"memoryQOS": {"minLimitPercent": 50, "oomKillGroup": 1}, "blkioQOS": {"enable": true}},
  "beClass": {"memoryQOS": {"wmarkRatio": 70}, "blkioQOS": {"enable": true}}}}`})
	n.adds(t, m5, func(spec cluster.Object) {
		spec["cpuBurstStrategy"] = map[string]any{"policy": "cpuBurstOnly", "cpuBurstPercent": 322.0}
		spec["resourceUsedThresholdWithBE"] = map[string]any{"cpuEvictThresholdPercent": 90.0}
		spec.At("resourceQOSStrategy", "lsrClass", "memoryQOS").(map[string]any)["oomKillGroup"] = 1.0
		spec.At("resourceQOSStrategy", "beClass").(map[string]any)["blkioQOS"] = map[string]any{"enable": true}
	})
	// Its memory threshold is in the documents' spelling, beside which API servers compare with the default.
	n.logs(t, keyThreshold+": resourceUsedThresholdWithBE.memoryEvictLowerPercent: left out: memoryEvictLowerPercent 72 is not below memoryEvictThresholdPercent 70",
		"/resourceThresholdStrategy/thresholds/memory-evict-threshold-percent (user)")
	n.tell(t, map[string]string{keyBurst: burstConfig(323)})
	n.follows(t, documented, 323, `{"cpuEvictThresholdPercent":90}`)

	n.anew(t, nil)
	n.put(t, read(t, m6a))
	n.tell(t, map[string]string{keyBurst: burstConfig(324), keyQOS: `{"clusterStrategy": {"lsClass": {"cpuQOS": {"enable": true}},
  "lsrClass": {"memoryQOS": {"minLimitPercent": 50, "wmarkScalePermill": 40}}, "beClass": {"memoryQOS": {"throttlingPercent": 70}}}}`})
	n.adds(t, m6a, func(spec cluster.Object) {
		spec["cpuBurstStrategy"] = map[string]any{"policy": "cpuBurstOnly", "cpuBurstPercent": 324.0}
		spec.At("resourceQOSStrategy").(map[string]any)["lsClass"] = map[string]any{"cpuQOS": map[string]any{"enable": true}}
		spec.At("resourceQOSStrategy", "lsrClass", "memoryQOS").(map[string]any)["wmarkScalePermill"] = 40.0
	})

	n.anew(t, map[string]string{keyThreshold: `{"clusterStrategy": {"cpuSuppressThresholdPercent": 60}}`})
	n.becomes(t, slos+"/"+documented, "NodeSLO before the documents'", func(o cluster.Object) bool { return percent(o, "cpuSuppressThresholdPercent") == 60 })
	const both = "resourceUsedThresholdWithBE.cpuSuppressThresholdPercent and resourceThresholdStrategy.thresholds.cpu-suppress-percent are two spellings of one field and differ; keep one"
	if _, err := n.c.Admin().Apply(t.Context(), "user", false, []byte(read(t, m5))); !cluster.Refused(err, "Invalid") || !strings.Contains(err.Error(), both) {
		t.Errorf("M5 after the strategy: %v, want a refusal that says %q", err, both)
	}
	n.tell(t, map[string]string{keyBurst: burstConfig(325)})
	n.follows(t, documented, 325, `{"cpuSuppressThresholdPercent":60}`)

	n.anew(t, nil)
	n.put(t, read(t, "testdata/manifests/m06b-slo-controller-config.yaml"))
	n.adds(t, m6a, func(cluster.Object) {})
	n.neverRefused(t)
	n.anew(t, nil)
}

// refusal: an API server that refuses a field for a reason that the manager does not know, such as a definition of another version, holds up nothing but
// that field. Its reason is logged, and the field comes once it is taken.
func (n *simulated) refusal(t *testing.T) {
	const field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/cpuBurstStrategy/properties/cpuBurstPercent/maximum"
	const path = slos + "/" + documented
	limit := func(most int) {
		t.Helper()
		change := []any{map[string]any{"op": "replace", "path": field, "value": most}}
		if _, err := n.c.Admin().Patch(t.Context(), "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodeslos.slo.koordinator.sh", cluster.JSONPatch, change); err != nil {
			t.Fatal(err)
		}
	}
	limit(5000)
	refused(t, "more than the definition takes", func() error {
		_, err := n.c.Admin().Patch(t.Context(), path+"?dryRun=All", cluster.MergePatch, map[string]any{"spec": map[string]any{"cpuBurstStrategy": map[string]any{"cpuBurstPercent": 6000}}})
		return err
	}, "less than or equal to 5000")
	n.tell(t, map[string]string{keyBurst: burstConfig(6000), keyThreshold: thresholdConfig(62)})
	o := n.becomes(t, path, "NodeSLO but for the field that is refused", func(o cluster.Object) bool {
		return percent(o, "cpuSuppressThresholdPercent") == 62 && o.Str("spec", "cpuBurstStrategy", "policy") == "cpuBurstOnly"
	})
	if got := o.At("spec", "cpuBurstStrategy", "cpuBurstPercent"); got != nil {
		t.Errorf("cpuBurstPercent is %v", got)
	}
	n.logs(t, "spec.cpuBurstStrategy.cpuBurstPercent", "less than or equal to 5000")
	n.running.shows(t, 30*time.Second, `slo_controller_nodeslo_reconcile_count\{reason="refused",status="failed"\} [1-9]\d*`)
	limit(10000)
	n.becomes(t, path, "NodeSLO with what was refused", func(o cluster.Object) bool { return o.Int("spec", "cpuBurstStrategy", "cpuBurstPercent") == 6000 })
	n.anew(t, nil)
}

// anew takes the strategy away but for those keys, and the documents' node's object, which the manager makes again.
func (n *simulated) anew(t *testing.T, keys map[string]string) {
	t.Helper()
	all := map[string]string{keyThreshold: "", keyQOS: "", keyBurst: ""}
	for key, text := range keys {
		all[key] = text
	}
	n.tell(t, all)
	was := n.becomes(t, slos+"/"+documented, "NodeSLO without the strategy", func(o cluster.Object) bool { return o.At("spec", "cpuBurstStrategy") == nil })
	if err := n.c.Admin().Delete(t.Context(), slos+"/"+documented, -1); err != nil {
		t.Fatal(err)
	}
	n.becomes(t, slos+"/"+documented, "NodeSLO made anew", func(o cluster.Object) bool { return o.Str("metadata", "uid") != was.Str("metadata", "uid") })
}

// knows waits until the manager has seen what a user has just written of the documents' node: it hears of a ConfigMap by another watch, which may be
// ahead, and would send what does not go together. What it writes of another key is newer, and it decides nothing until it has seen that.
func (n *simulated) knows(t *testing.T, burst int) {
	t.Helper()
	n.tell(t, map[string]string{keyBurst: burstConfig(burst)})
	n.becomes(t, slos+"/"+documented, "NodeSLO with a first key", func(o cluster.Object) bool { return o.Int("spec", "cpuBurstStrategy", "cpuBurstPercent") == burst })
}

// follows waits until the key of CPU burst has come to a node, whose thresholds are as they should be then.
func (n *simulated) follows(t *testing.T, name string, burst int, thresholds string) {
	t.Helper()
	o := n.becomes(t, slos+"/"+name, "NodeSLO by a key that has nothing to do with it", func(o cluster.Object) bool {
		return o.Int("spec", "cpuBurstStrategy", "cpuBurstPercent") == burst
	})
	if got := o.Compact("spec", "resourceUsedThresholdWithBE"); got != thresholds {
		t.Errorf("thresholds of %s: %s, want %s", name, got, thresholds)
	}
}

// adds waits until the documents' node has what a manifest says, and what more says beside it.
func (n *simulated) adds(t *testing.T, manifest string, more func(spec cluster.Object)) {
	t.Helper()
	o, err := cluster.ParseObject([]byte(read(t, manifest)))
	if err != nil {
		t.Fatal(err)
	}
	want, _ := o.At("spec").(map[string]any)
	more(want)
	eventually(t, 30*time.Second, func() error {
		got, err := n.c.Admin().Get(t.Context(), slos+"/"+documented)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(want, got.At("spec")); diff != "" {
			return fmt.Errorf("%s and the strategy (-want +got):\n%s", manifest, diff)
		}
		return nil
	})
}

// logs waits for texts in one line of the manager's log.
func (n *simulated) logs(t *testing.T, texts ...string) {
	t.Helper()
	eventually(t, 30*time.Second, func() error {
	lines:
		for line := range strings.Lines(read(t, n.running.log)) {
			for _, text := range texts {
				if !strings.Contains(line, text) {
					continue lines
				}
			}
			return nil
		}
		return fmt.Errorf("no line of %s says %q:\n%s", n.running.log, texts, logEnd(n.running.log))
	})
}

// neverRefused: what the manager knows not to go together it never sends.
func (n *simulated) neverRefused(t *testing.T) {
	t.Helper()
	if is, err := n.running.has(t.Context(), `slo_controller_nodeslo_reconcile_count\{reason="refused".*`); is || err != nil {
		t.Errorf("the API server has refused: %t, %v", is, err)
	}
}
