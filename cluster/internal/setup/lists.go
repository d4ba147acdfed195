// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"maps"
	"slices"
	"strings"
)

// parts is a list that may be given in parts, as Koordinator's flags may: each adds to those before, and the first takes the default's place.
type parts struct {
	list  []string
	given bool
}

func (l *parts) String() string { return strings.Join(l.list, ",") }

// Set adds a part.
func (l *parts) Set(part string) error {
	if !l.given {
		l.list, l.given = nil, true
	}
	l.list = append(l.list, part)
	return nil
}

func (p *parser) parts(name, otherwise, usage string) *parts {
	out := &parts{list: []string{otherwise}}
	p.flags.Var(out, name, usage)
	return out
}

// list reads names, each of which must be known; those of idle are accepted. * is all, and -name takes one out, wherever it stands.
func (p *parser) list(name, text string, all []string, idle map[string]string) []string {
	out, less := map[string]bool{}, map[string]bool{}
	for _, item := range split(text) {
		bare, minus := strings.CutPrefix(item, "-")
		switch why := idle[bare]; {
		case item == "*":
			for _, a := range all {
				out[a] = true
			}
		case slices.Contains(all, bare) && minus:
			less[bare] = true
		case slices.Contains(all, bare):
			out[bare] = true
		case why != "" && minus: // it is not here anyway
		case why != "":
			p.more = append(p.more, "--"+name+": "+item+" has "+why)
		default:
			p.fail("%s: %.60q is not known; known are %s", name, item, strings.Join(all, ", "))
		}
	}
	maps.DeleteFunc(out, func(item string, _ bool) bool { return less[item] })
	if len(out) == 0 {
		p.fail("%s=%.60s: nothing is left to do; known are %s", name, text, strings.Join(all, ", "))
	}
	return slices.Sorted(maps.Keys(out))
}

// split cuts at commas; empty parts are nothing.
func split(text string) []string {
	var out []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}
