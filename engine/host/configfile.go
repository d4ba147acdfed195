// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// configFile follows the configuration file, which a ConfigMap may hold. A strategy in it is put in force; everything else is taken in by a restart,
// which a person who has edited the file must be told, and which a broken file would refuse.
type configFile struct {
	path  string
	again Again
	// strategy takes the strategy that stands in the file; nil where the node's stands elsewhere.
	strategy *strategyFile
	// problem is told what is not in force, and why.
	problem func(path string, err error)
	log     *slog.Logger

	seen seen
	// pending is what was told last, "" for nothing. It is read by others.
	pending atomic.Value
}

func (f *configFile) run(ctx context.Context) error { return follow(ctx, f.path, f.look) }

func (f *configFile) look() {
	if !f.seen.news(f.path) {
		return
	}
	spec, changed, err := f.read()
	if err != nil {
		err = fmt.Errorf("the last good one holds, and a start would be refused: %w", err)
	} else {
		err = f.take(spec)
		if len(changed) > 0 {
			err = errors.Join(err, fmt.Errorf("%s: changed in the file, and taken in by a restart only", strings.Join(changed, ", ")))
		}
	}
	text := ""
	if err != nil {
		text = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	switch before := f.pending.Swap(text); {
	case text != "" && text != before:
		f.problem(f.path, err)
	case text == "" && before != "" && before != nil:
		f.log.Info("nothing of the configuration file waits for a restart any more", "file", f.path)
	}
}

// waiting is what the file says that is not in force, "" for nothing. It is safe for concurrent use.
func (f *configFile) waiting() string {
	text, _ := f.pending.Load().(string)
	return text
}

func (f *configFile) read() (*strategy.Spec, []string, error) {
	data, err := ReadFile(f.path)
	if err != nil {
		return nil, nil, err
	}
	return f.again(data)
}

// take puts the file's strategy in force, or says why it is not.
func (f *configFile) take(spec *strategy.Spec) error {
	switch {
	case f.strategy != nil && spec == nil:
		return errors.New("strategy: the file holds none any more: the last one holds")
	case f.strategy != nil:
		f.strategy.take(spec)
	case spec != nil:
		return errors.New("strategy: the file holds one, and did not at the start: taken in by a restart only")
	}
	return nil
}

// treeOf is a configuration by the names that its file has.
func treeOf(config any) (map[string]any, error) {
	data, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encode the configuration: %w", err)
	}
	var tree map[string]any
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, fmt.Errorf("read the configuration back: %w", err)
	}
	return tree, nil
}

// differing are the keys below at whose values are not the same, in order. A list is one value.
func differing(at string, a, b map[string]any) (out []string) {
	keys := maps.Clone(a)
	maps.Copy(keys, b)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		below, isA := a[key].(map[string]any)
		other, isB := b[key].(map[string]any)
		switch {
		case isA && (isB || b[key] == nil), isB && a[key] == nil: // a map that is left out is an empty one
			out = append(out, differing(at+key+".", below, other)...)
		case !reflect.DeepEqual(a[key], b[key]):
			out = append(out, at+key)
		}
	}
	return out
}
