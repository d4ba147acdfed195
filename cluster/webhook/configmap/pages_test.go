// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package configmap

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/koord-rt/koord-rt/cluster/slo/config"
)

const guide = "../../../docs/user/"

var (
	shown = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")
	// row is one of the guide's table of keys that go to the NodeSLO.
	row = regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| NodeSLO \\| `(\\w+)`")
)

// page is the text of one page of the guide.
func page(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(guide + file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// configMaps are those that a page shows.
func configMaps(t *testing.T, file string) (out []corev1.ConfigMap) {
	t.Helper()
	for _, m := range shown.FindAllStringSubmatch(page(t, file), -1) {
		if !strings.Contains(m[1], "kind: ConfigMap\n") {
			continue
		}
		var o corev1.ConfigMap
		if err := yaml.UnmarshalStrict([]byte(m[1]), &o); err != nil {
			t.Fatalf("%s: %v in\n%s", file, err, m[1])
		}
		out = append(out, o)
	}
	return out
}

// TestPagesConfigMaps: each ConfigMap of the guide passes, and becomes the NodeSLO of a node without labels that it shows: the part that the
// guide's table names for a key has what stands there for the cluster, and no other part has anything.
func TestPagesConfigMaps(t *testing.T) {
	t.Parallel()
	parts := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(page(t, "manager.md"), -1) {
		parts[m[1]] = m[2]
	}
	pages, err := filepath.Glob(guide + "*.md")
	if err != nil || len(parts) != 5 {
		t.Fatalf("keys of the table: %q, %v", parts, err)
	}
	found := map[string]int{}
	for _, path := range pages {
		file := filepath.Base(path)
		for _, o := range configMaps(t, file) {
			// One by another name would pass whatever it says. Without a name it is part of one.
			if at := o.Namespace + "/" + o.Name; at != "/" && at != home+"/"+name {
				t.Errorf("%s: ConfigMap %s is not the strategy", file, at)
			}
			if resp := ask(t, admissionv1.Create, home, name, o.Data, nil); !resp.Allowed || len(resp.Warnings) > 0 {
				t.Errorf("%s: refused: %s, warnings %q", file, resp.Result.Message, resp.Warnings)
			}
			parsed, _ := config.Parse(o.Data, config.Default()) // of which admission has just told the problems
			spec, problems := parsed.NodeSLO(config.Node{Name: "plain"})
			if len(problems) > 0 {
				t.Errorf("%s: %v", file, problems)
			}
			if diff := cmp.Diff(said(t, o.Data, parts), fields(t, spec)); diff != "" {
				t.Errorf("%s: NodeSLO (-page +node):\n%s", file, diff)
			}
			found[file]++
		}
	}
	if diff := cmp.Diff(map[string]int{"manager.md": 1, "lending.md": 1}, found); diff != "" {
		t.Errorf("ConfigMaps of the pages (-want +got):\n%s", diff)
	}
}

// said is what keys say of the whole cluster, by the part of the NodeSLO that each of them goes to.
func said(t *testing.T, data, parts map[string]string) map[string]any {
	t.Helper()
	out := map[string]any{}
	for key, text := range data {
		part, ok := parts[key]
		if !ok {
			continue // it goes to other objects
		}
		var of struct{ ClusterStrategy map[string]any }
		if err := yaml.Unmarshal([]byte(text), &of); err != nil || len(of.ClusterStrategy) == 0 {
			t.Errorf("%s says nothing of the cluster: %v", key, err)
		}
		out[part] = of.ClusterStrategy
	}
	return out
}

// fields is a value as its JSON has it.
func fields(t *testing.T, v any) map[string]any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPageOfStrategies: what else docs/user/manager.md says beside its ConfigMap: what is lent of the pool's nodes and of others, and how a wrong
// field is refused.
func TestPageOfStrategies(t *testing.T) {
	t.Parallel()
	data := configMaps(t, "manager.md")[0].Data
	parsed, _ := config.Parse(data, config.Default())
	for want, labels := range map[int64]map[string]string{60: nil, 40: {"pool": "db"}} {
		if c, problems := parsed.Colocation(config.Node{Labels: labels}); !c.Enable || c.CPUReclaimPercent != want || len(problems) > 0 {
			t.Errorf("a node with labels %v: %+v, %v", labels, c, problems)
		}
	}
	const key = "resource-threshold-config"
	data[key] = strings.Replace(data[key], "Percent: 65", "Percent: 650", 1)
	resp := ask(t, admissionv1.Create, home, name, data, nil)
	if says := regexp.MustCompile(`(?m)^ +(` + key + `: line .*)$`).FindStringSubmatch(page(t, "manager.md")); len(says) != 2 || !strings.Contains(resp.Result.Message, says[1]) {
		t.Errorf("admission says %q, the page %q", resp.Result.Message, says)
	}
}

// TestPageOfLending: the numbers that docs/user/lending.md shows are those that hold without them, but for the one without a default.
func TestPageOfLending(t *testing.T) {
	t.Parallel()
	health := func(data map[string]string) config.Health {
		t.Helper()
		parsed, problems := config.Parse(data, config.Default())
		colocation, more := parsed.Colocation(config.Node{})
		h, wrong := colocation.Health()
		if all := slices.Concat(problems, more, wrong); len(all) > 0 || !colocation.Enable {
			t.Fatalf("%v: %+v, %v", data, colocation, all)
		}
		return h
	}
	got, want := health(configMaps(t, "lending.md")[0].Data), health(map[string]string{config.KeyColocation: "enable: true"})
	if got.MemoryPressureWatermark == nil || *got.MemoryPressureWatermark != 150 {
		t.Errorf("the page's watermark: %v", got.MemoryPressureWatermark)
	}
	got.MemoryPressureWatermark = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("defaults (-hold +page):\n%s", diff)
	}
}
