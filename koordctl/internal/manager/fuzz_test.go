// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package manager

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
)

// FuzzParse: whatever somebody answers in koord-manager's place ends in an error or in a picture of named nodes, each once and in order, that
// -o json can print and read again.
func FuzzParse(f *testing.F) {
	text, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	for _, seed := range []string{
		"", "{{{\n", "koordinator_manager_is_leader 1\n",
		"koordinator_manager_is_leader 1\nkoord_rt_manager_node_line{node=\"a\",line=\"usage\",resource=\"memory\"} 999999999999999\n",
		"koordinator_manager_is_leader 1\nkoord_rt_manager_node_problems{node=\"a\"} NaN\nkoord_rt_manager_node_problems 1e99\n",
		"# TYPE koordinator_manager_is_leader histogram\nkoordinator_manager_is_leader_count 1\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parse(strings.NewReader(text), "somebody")
		if err != nil {
			return
		}
		for i, n := range p.Nodes {
			if i > 0 && p.Nodes[i-1].Name >= n.Name {
				t.Errorf("%q before %q", p.Nodes[i-1].Name, n.Name)
			}
			if n.Problems < 0 {
				t.Errorf("%d problems", n.Problems)
			}
		}
		_ = p.Total()
		printed, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var again Picture
		if err := json.Unmarshal(printed, &again); err != nil || !reflect.DeepEqual(*p, again) {
			t.Errorf("printed and read again: %+v, want %+v (%v)", again, *p, err)
		}
	})
}
