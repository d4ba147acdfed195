// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"
)

// Object is an API object as JSON holds it: maps, slices, strings, float64, bool.
type Object map[string]any

// At walks maps and, for numeric steps given as int, slices; nil if there is no such place.
func (o Object) At(steps ...any) any {
	var v any = map[string]any(o)
	for _, s := range steps {
		switch at := s.(type) {
		case string:
			m, ok := v.(map[string]any)
			if !ok {
				return nil
			}
			v = m[at]
		case int:
			l, ok := v.([]any)
			if !ok || at < 0 || at >= len(l) {
				return nil
			}
			v = l[at]
		default:
			return nil
		}
	}
	return v
}

// Str is the string at a place, "" if there is none.
func (o Object) Str(steps ...any) string {
	s, _ := o.At(steps...).(string)
	return s
}

// Int is the number at a place, 0 if there is none.
func (o Object) Int(steps ...any) int {
	f, _ := o.At(steps...).(float64)
	return int(f)
}

// Items are the objects of a list.
func (o Object) Items() []Object {
	list, _ := o["items"].([]any)
	out := make([]Object, 0, len(list))
	for _, i := range list {
		if m, ok := i.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// Condition is the status of the condition of that type: "True", "False", "Unknown", or "".
func (o Object) Condition(kind string) string {
	list, _ := o.At("status", "conditions").([]any)
	for _, i := range list {
		if m, ok := i.(map[string]any); ok && m["type"] == kind {
			s, _ := m["status"].(string)
			return s
		}
	}
	return ""
}

// InForce reports whether a NodeSLO's status says that its newest spec is:
//
//	status.observedGeneration = metadata.generation > 0, and the condition Applied is "True"
func (o Object) InForce() bool {
	generation := o.Int("metadata", "generation")
	return generation > 0 && o.Int("status", "observedGeneration") == generation && o.Condition("Applied") == "True"
}

// Compact is one place of the object as JSON, cut to 2000 bytes, for messages.
func (o Object) Compact(steps ...any) string {
	data, err := json.Marshal(o.At(steps...))
	if err != nil {
		return err.Error()
	}
	return string(data[:min(len(data), 2000)])
}

// ParseObject reads one YAML or JSON document.
func ParseObject(text []byte) (Object, error) {
	var o Object
	if err := yaml.Unmarshal(text, &o); err != nil {
		return nil, fmt.Errorf("parse object: %w", err)
	}
	return o, nil
}

// kinds remembers where the kinds of a group version live.
type kinds struct {
	mu   sync.Mutex
	seen map[string]place // apiVersion/kind
}

type place struct {
	plural     string
	namespaced bool
}

// Path is the API path of an object, found by asking the server for its kind.
func (c *Client) Path(ctx context.Context, o Object) (string, error) {
	version, kind := o.Str("apiVersion"), o.Str("kind")
	p, err := c.place(ctx, version, kind)
	if err != nil {
		return "", err
	}
	path := versionPath(version)
	if p.namespaced {
		ns := o.Str("metadata", "namespace")
		if ns == "" {
			ns = "default"
		}
		path += "/namespaces/" + ns
	}
	return path + "/" + p.plural + "/" + o.Str("metadata", "name"), nil
}

func versionPath(version string) string {
	if strings.Contains(version, "/") {
		return "/apis/" + version
	}
	return "/api/" + version
}

func (c *Client) place(ctx context.Context, version, kind string) (place, error) {
	key := version + "/" + kind
	c.kinds.mu.Lock()
	p, ok := c.kinds.seen[key]
	c.kinds.mu.Unlock()
	if ok {
		return p, nil
	}
	list, err := c.Get(ctx, versionPath(version))
	if err != nil {
		return place{}, fmt.Errorf("find kind %s of %s: %w", kind, version, err)
	}
	resources, _ := list["resources"].([]any)
	for _, r := range resources {
		m, _ := r.(map[string]any)
		name, _ := m["name"].(string)
		if m["kind"] != kind || strings.Contains(name, "/") {
			continue
		}
		p.plural = name
		p.namespaced, _ = m["namespaced"].(bool)
		c.kinds.mu.Lock()
		defer c.kinds.mu.Unlock()
		if c.kinds.seen == nil {
			c.kinds.seen = map[string]place{}
		}
		c.kinds.seen[key] = p
		return p, nil
	}
	return place{}, fmt.Errorf("find kind %s of %s: the server does not serve it", kind, version)
}

// Apply applies every document of a YAML text by server-side apply as that field
// manager, with strict validation; force takes fields over from other managers.
func (c *Client) Apply(ctx context.Context, manager string, force bool, text []byte) ([]Object, error) {
	var out []Object
	for _, doc := range strings.Split("\n"+string(text), "\n---") {
		o, err := ParseObject([]byte(doc))
		if err != nil {
			return out, err
		}
		if len(o) == 0 {
			continue
		}
		path, err := c.Path(ctx, o)
		if err != nil {
			return out, err
		}
		q := url.Values{"fieldManager": {manager}, "fieldValidation": {"Strict"}}
		if force {
			q.Set("force", "true")
		}
		got, err := c.object(ctx, http.MethodPatch, withQuery(path, q.Encode()), "application/apply-patch+yaml", o)
		if err != nil {
			return out, err
		}
		out = append(out, got)
	}
	return out, nil
}

func withQuery(path, query string) string {
	if strings.Contains(path, "?") {
		return path + "&" + query
	}
	return path + "?" + query
}
