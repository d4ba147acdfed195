// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kubetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// list answers a list, unless it is to be newer than what there is.
func (s *Server) list(w http.ResponseWriter, r *http.Request, c *collection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if least, err := strconv.Atoi(r.URL.Query().Get("resourceVersion")); err == nil && least > s.version {
		refuse(w, http.StatusGatewayTimeout, "Timeout", fmt.Sprintf("Too large resource version: %d, current: %d", least, s.version), "", "ResourceVersionTooLarge")
		return
	}
	items := []Object{}
	for _, name := range sorted(c.objects) {
		if selected(r, c.objects[name]) {
			items = append(items, c.objects[name])
		}
	}
	answer(w, http.StatusOK, Object{"kind": "List", "apiVersion": "v1", "metadata": Object{"resourceVersion": strconv.Itoa(s.version)}, "items": items})
}

// event has the order of the API server, whose clients may look at the beginning only.
type event struct {
	Type   string `json:"type"`
	Object Object `json:"object"`
}

// watch streams changes behind the version asked for.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, c *collection) {
	q := r.URL.Query()
	from, err := strconv.Atoi(q.Get("resourceVersion"))
	s.mu.Lock()
	oldest := s.oldest
	s.mu.Unlock()
	if err != nil || from < oldest {
		refuse(w, http.StatusGone, "Expired", "too old resource version", "")
		return
	}
	seconds, err := strconv.Atoi(q.Get("timeoutSeconds"))
	if err != nil {
		seconds = 60
	}
	end := time.NewTimer(time.Duration(seconds) * time.Second)
	defer end.Stop()
	w.Header().Set("Content-Type", "application/json")
	flush := http.NewResponseController(w).Flush
	if flush() != nil {
		return
	}
	encoder := json.NewEncoder(w)
	for {
		s.mu.Lock()
		news := slices.Clone(c.history)
		more := make(chan struct{})
		c.watchers[more] = struct{}{}
		s.mu.Unlock()
		for _, e := range news {
			if e.version <= from {
				continue
			}
			from = e.version
			if e.kind == "BOOKMARK" || selected(r, e.object) {
				if encoder.Encode(event{e.kind, e.object}) != nil {
					return
				}
			}
		}
		if flush() != nil {
			return
		}
		select {
		case <-more:
		case <-end.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// selected evaluates the two field selectors that are used.
func selected(r *http.Request, o Object) bool {
	key, value, ok := strings.Cut(r.URL.Query().Get("fieldSelector"), "=")
	switch {
	case !ok:
		return true
	case key == "metadata.name":
		return meta(o)["name"] == value
	}
	spec, _ := o["spec"].(map[string]any)
	return key == "spec.nodeName" && spec["nodeName"] == value
}

func meta(o Object) Object {
	m, _ := o["metadata"].(map[string]any)
	return m
}

// clone copies an object and its metadata; what lies deeper is never written.
func clone(o Object) Object {
	out := make(Object, len(o))
	for k, v := range o {
		out[k] = v
	}
	m := make(Object)
	for k, v := range meta(o) {
		m[k] = v
	}
	out["metadata"] = m
	return out
}

// merged is RFC 7386.
func merged(o, patch Object) Object {
	out := make(Object, len(o))
	for k, v := range o {
		out[k] = v
	}
	for k, v := range patch {
		was, _ := out[k].(map[string]any)
		switch change, isObject := v.(map[string]any); {
		case v == nil:
			delete(out, k)
		case isObject:
			out[k] = map[string]any(merged(was, change))
		default:
			out[k] = v
		}
	}
	return out
}

func sorted(m map[string]Object) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// Status is the body of an answer that is no success. causes are reasons in its details.
func Status(code int, reason, message, name string, causes ...string) string {
	details := Object{}
	if name != "" {
		details["name"] = name
	}
	var list []Object
	for _, c := range causes {
		list = append(list, Object{"reason": c})
	}
	if list != nil {
		details["causes"] = list
	}
	b, err := json.Marshal(Object{
		"kind": "Status", "apiVersion": "v1", "metadata": Object{}, "status": "Failure",
		"code": code, "reason": reason, "message": message, "details": details,
	})
	if err != nil {
		return ""
	}
	return string(b)
}

func refuse(w http.ResponseWriter, code int, reason, message, name string, causes ...string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(Status(code, reason, message, name, causes...)))
}

func answer(w http.ResponseWriter, code int, o Object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(o)
}
