// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/evict"
	"github.com/koord-rt/koord-rt/policy/iocost"
)

const none = "none"

// knownDefaults are all knobs of a node, of NodeSLO's spec and of koordlet.yaml, by path, each with the default that the code has for it.
type knownDefaults map[string]string

// knownKnobs has them from the types, with the values of an empty strategy and of an empty file. What is off has neutral values: those of the
// classes are what holds from the day a feature is switched on.
func knownKnobs(t *testing.T) knownDefaults {
	t.Helper()
	out := knownDefaults{}
	on := strategy.Spec{ResourceQOSStrategy: &strategy.ResourceQOSStrategy{}}
	for _, class := range []**strategy.ResourceQOS{&on.ResourceQOSStrategy.LSRClass, &on.ResourceQOSStrategy.LSClass, &on.ResourceQOSStrategy.BEClass} {
		*class = &strategy.ResourceQOS{
			CPUQOS: &strategy.CPUQOS{Enable: new(true)}, MemoryQOS: &strategy.MemoryQOS{Enable: new(true)}, ResctrlQOS: &strategy.ResctrlQOS{Enable: new(true)},
		}
	}
	out.add("", reflect.TypeFor[strategy.Spec](), tree(t, strategy.Effective(on)))
	off := knownDefaults{}
	off.add("", reflect.TypeFor[strategy.Spec](), tree(t, strategy.Effective(strategy.Spec{})))
	for path := range off {
		if strings.HasSuffix(path, ".enable") {
			out[path] = off[path]
		}
	}
	out.add("", reflect.TypeFor[config.Koordlet](), tree(t, config.DefaultKoordlet()))
	maps.Copy(out, lowerMarks(t))
	for path, value := range diskTargets(t) {
		out["resourceQOSStrategy.cgroupRoot.blkioQOS.blocks.ioCfg."+path] = value
	}
	if len(out) < 200 {
		t.Fatalf("only %d knobs", len(out))
	}
	return out
}

// tree is a value as its JSON has it.
func tree(t *testing.T, v any) any {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.UseNumber()
	if err := d.Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

// add walks a type by the names of its JSON; a list's fields stand below the list.
func (k knownDefaults) add(path string, of reflect.Type, value any) {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	if path != "" {
		k[path] = rendered(value)
	}
	if of.Kind() != reflect.Struct || reflect.PointerTo(of).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return
	}
	fields, _ := value.(map[string]any)
	for i := range of.NumField() {
		f := of.Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && key == "":
			k.add(path, f.Type, value)
		case key != "" && key != "-":
			k.add(strings.TrimPrefix(path+"."+key, "."), f.Type, fields[key])
		}
	}
}

// rendered is a default as the guide writes it.
func rendered(value any) string {
	text, ok := value.(string)
	switch {
	case value == nil:
		return none
	case ok && strings.HasSuffix(text, "m0s"): // Go's durations
		return strings.TrimSuffix(strings.TrimSuffix(text, "0s"), "0m")
	}
	return fmt.Sprint(value)
}

// lowerMarks are the defaults of where evictions end: as far below the threshold for one threshold as for another.
func lowerMarks(t *testing.T) knownDefaults {
	t.Helper()
	out := knownDefaults{}
	for _, threshold := range []int64{50, 90} {
		s := *strategy.Effective(strategy.Spec{ResourceUsedThresholdWithBE: &strategy.ResourceThresholdStrategy{
			Enable: new(true), MemoryEvictThresholdPercent: &threshold, CPUEvictThresholdPercent: &threshold,
			CPUAllocatableEvictThresholdPercent: &threshold, MemoryAllocatableEvictThresholdPercent: &threshold,
			AllocatableEvictPriorityThreshold: new(int32(7999)),
		}}).ResourceUsedThresholdWithBE
		marks := map[string]int64{"memoryEvictLowerPercent": *s.MemoryEvictLowerPercent, "cpuEvictLowerPercent": *s.CPUEvictLowerPercent}
		_, step := evict.Step(evict.State{}, evict.Input{
			Now: unit.Minute, Strategy: s, Features: evict.All,
			CPU:    evict.CPU{BatchAllocatable: unit.Got[unit.MilliCPU](100)},
			Memory: evict.Memory{BatchAllocatable: unit.Got[unit.Bytes](100)},
			Pods: []evict.Pod{{
				UID: "u", Band: protocol.PriorityBatch, Priority: 5500, EvictionEnabled: true, Allowed: evict.All, CPURequest: 200, MemoryRequest: 200,
			}},
		})
		for _, d := range step.Decisions {
			switch d.Feature {
			case evict.CPUAllocatableEvict:
				marks["cpuAllocatableEvictLowerPercent"] = 200 - int64(d.CPU.Release)
			case evict.MemoryAllocatableEvict:
				marks["memoryAllocatableEvictLowerPercent"] = 200 - int64(d.Memory.Release)
			}
		}
		if len(marks) != 4 {
			t.Fatalf("threshold %d: %v by %+v", threshold, marks, step.Decisions)
		}
		for key, mark := range marks {
			path, text := "resourceUsedThresholdWithBE."+key, fmt.Sprintf("threshold − %d", threshold-mark)
			if has, ok := out[path]; ok && has != text {
				t.Fatalf("%s: %s and %s", key, has, text)
			}
			out[path] = text
		}
	}
	return out
}

// diskTargets are the defaults of a disk's targets, by what is written where one of them is given.
func diskTargets(t *testing.T) knownDefaults {
	t.Helper()
	out := knownDefaults{}
	words := map[string]string{"rlat": "readLatency", "wlat": "writeLatency", "rpct": "readLatencyPercent", "wpct": "writeLatencyPercent"}
	for given, c := range map[string]strategy.IOCfg{"rlat": {ReadLatency: new(int64(1))}, "wpct": {WriteLatencyPercent: new(int64(1))}} {
		_, step := iocost.Step(iocost.State{}, iocost.Input{
			Blocks: []strategy.Block{{Name: "sda", Type: strategy.BlockDevice, IOCfg: c}},
			Kernel: &node.Kernel{Disks: map[string]string{"sda": "8:0"}},
			Lines:  map[plan.Knob]map[string]string{plan.IOCostQoS: {}},
		})
		if len(step.Plan) != 1 {
			t.Fatalf("plan %v, problems %v", step.Plan, step.Problems)
		}
		for word := range strings.FieldsSeq(step.Plan[0].Value.String()) {
			name, value, _ := strings.Cut(word, "=")
			if key := words[name]; key != "" && name != given {
				out[key] = strings.TrimSuffix(value, ".00")
			}
		}
	}
	if len(out) != len(words) {
		t.Fatalf("targets %v", out)
	}
	return out
}

// find are the paths that end with key and have the names of within on their way, or the one that key is. Fields that each class has are those of
// LSR, LS and BE, where the root's are not asked for.
func (k knownDefaults) find(within []string, key string) (out []string) {
	root := slices.Contains(within, "cgroupRoot") || strings.HasPrefix(key, "cgroupRoot.")
	for path := range k {
		at, ok := strings.CutSuffix("."+path, "."+key)
		if !ok || strings.Contains(path, ".systemClass.") || root && strings.Contains(path, "Class.") || !root && strings.Contains(path, ".cgroupRoot.") {
			continue
		}
		for _, name := range within {
			if _, rest, found := strings.Cut(at+".", "."+name+"."); found {
				at = "." + rest
			} else {
				ok = false
			}
		}
		if ok {
			out = append(out, path)
		}
	}
	if _, exact := k[key]; len(out) == 0 && exact {
		return []string{key}
	}
	slices.Sort(out)
	return out
}

// text is the default of paths that differ by class only.
func (k knownDefaults) text(paths []string) (string, error) {
	var values []string
	of := map[string][]string{}
	where := ""
	for _, class := range []string{"lsr", "ls", "be", ""} {
		for _, path := range paths {
			before, after, found := strings.Cut(path, "."+class+"Class.")
			if class == "" {
				before, after, found = path, "", !strings.Contains(path, "Class.")
			}
			if !found {
				continue
			}
			if at := before + " " + after; where == "" {
				where = at
			} else if where != at {
				return "", fmt.Errorf("more than one knob: %v", paths)
			}
			if of[k[path]] == nil {
				values = append(values, k[path])
			}
			of[k[path]] = append(of[k[path]], strings.ToUpper(class))
		}
	}
	if len(values) == 1 {
		return values[0], nil
	}
	for i, v := range values {
		values[i] = v + " " + strings.Join(of[v], " and ")
	}
	return strings.Join(values, ", "), nil
}

func isKnobTable(table [][]string) bool { return len(table[0]) > 2 && table[0][1] == "default" }

// Each knob in a table of koordlet's guide is one of the strategy, of koordlet.yaml or an annotation, and the default that stands beside it is the code's.
func TestGuideStatesTheDefaults(t *testing.T) {
	t.Parallel()
	known := knownKnobs(t)
	src, err := parse(filepath.Join(root, "api", "protocol"))
	if err != nil {
		t.Fatal(err)
	}
	annotations := slices.Collect(maps.Values(src.texts))
	n := 0
	for path, text := range manuals(t) {
		if !isGuide(path) {
			continue
		}
		for _, table := range mdTables(text) {
			if !isKnobTable(table) {
				continue
			}
			within := slices.DeleteFunc(spans(table[0][0]), func(s string) bool { return strings.Contains(s, "/") })
			parent := ""
			for _, row := range table[1:] {
				var wants []string
				keys := spans(row[0])
				for _, key := range keys {
					if slices.Contains(annotations, key) {
						wants = append(wants, none)
						continue
					}
					if rest, same := strings.CutPrefix(key, "…."); same {
						key = parent + rest
					} else if len(known.find(within, parent+key)) == 0 || strings.Contains(key, ".") {
						parent = key[:strings.LastIndex(key, ".")+1]
					} else {
						key = parent + key
					}
					found := known.find(within, key)
					want, err := known.text(found)
					if len(found) == 0 || err != nil {
						t.Errorf("%s: %s: %s: no knob of this name, or several: %v", path, table[0][0], key, err)
					}
					wants = append(wants, want)
					n++
				}
				if !states(row[1], wants) {
					t.Errorf("%s: %s: default %q, the code has %q", path, row[0], row[1], strings.Join(wants, ", "))
				}
			}
		}
	}
	if n < 70 {
		t.Errorf("only %d knobs were found", n)
	}
}

// states reports whether a cell has the defaults of its row, one for each knob or one for all. What the value means may follow a colon.
func states(cell string, wants []string) bool {
	cell, _, _ = strings.Cut(cell, ": ")
	cell = strings.ReplaceAll(strings.ReplaceAll(cell, "not written", none), "–", none)
	if len(slices.Compact(slices.Clone(wants))) <= 1 && cell == append(wants, none)[0] {
		return true
	}
	return cell == strings.Join(wants, ", ")
}
