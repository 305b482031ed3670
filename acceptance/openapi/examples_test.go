package openapi

import (
	"fmt"
	"strings"
	"testing"

	v3 "github.com/pb33f/libopenapi/datamodel/high/v3"
	"github.com/pb33f/libopenapi/orderedmap"
)

func TestEveryExampleFitsItsSchema(t *testing.T) {
	d := load(t)
	n := 0
	check := func(where string, media *v3.MediaType) {
		if media.Schema == nil || orderedmap.Len(media.Examples) == 0 {
			t.Errorf("%s: no schema or no example", where)
			return
		}
		for name, example := range media.Examples.FromOldest() {
			n++
			if problem := d.fits(media.Schema, decode(t, example.Value)); problem != "" {
				t.Errorf("%s, example %s: %s", where, name, problem)
			}
		}
	}
	for _, op := range d.operations() {
		if op.RequestBody != nil {
			for kind, media := range op.RequestBody.Content.FromOldest() {
				check(fmt.Sprintf("request of %s as %s", op.OperationId, kind), media)
			}
		}
		for status, response := range op.Responses.Codes.FromOldest() {
			for kind, media := range response.Content.FromOldest() {
				where := fmt.Sprintf("%s answered %s as %s", op.OperationId, status, kind)
				check(where, media)
				for name, example := range media.Examples.FromOldest() {
					d.checkText(t, where+", example "+name, kind, media, decode(t, example.Value))
				}
			}
		}
	}
	for name, response := range d.model.Components.Responses.FromOldest() {
		for kind, media := range response.Content.FromOldest() {
			check("components.responses."+name+" as "+kind, media)
		}
	}
	for name, parameter := range d.model.Components.Parameters.FromOldest() {
		for _, example := range parameter.Examples.FromOldest() {
			n++
			if problem := d.fits(parameter.Schema, decode(t, example.Value)); problem != "" {
				t.Errorf("parameter %s: %s", name, problem)
			}
		}
	}
	for name, schema := range d.model.Components.Schemas.FromOldest() {
		for _, example := range schema.Schema().Examples {
			n++
			if problem := d.fits(schema, decode(t, example)); problem != "" {
				t.Errorf("schema %s: %s", name, problem)
			}
		}
	}
	t.Logf("%d examples", n)
}

// checkText checks a text beyond what a schema can say of it.
func (d *document) checkText(t *testing.T, where, kind string, media *v3.MediaType, value any) {
	t.Helper()
	text, ok := value.(string)
	if !ok || kind != "text/event-stream" {
		return
	}
	events, err := readEvents(text)
	if err != nil || len(events) == 0 {
		t.Errorf("%s: %d events, %v", where, len(events), err)
		return
	}
	schema := media.Schema.Schema().ContentSchema
	if schema == nil {
		t.Errorf("%s: the document does not say what the events are", where)
		return
	}
	if problem := d.fits(schema, events); problem != "" {
		t.Errorf("%s: %s", where, problem)
	}
}

func decode(t *testing.T, node interface{ Decode(any) error }) any {
	t.Helper()
	var value any
	if err := node.Decode(&value); err != nil {
		t.Fatal(err)
	}
	return asJSON(t, value)
}

// A value that does not fit is found, so that the test above shows something.
func TestWhatDoesNotFitIsFound(t *testing.T) {
	d := load(t)
	fitting := `{"key":"k","state":"held","owner":"","note":"","fencing_token":1,"acquired_at":"2026-11-29T21:12:07.728Z","ttl_ms":1,
		"valid_for_ms":1,"valid_until_boottime_ms":1,"renew":true,"bind":"none","max_hold_ms":0,"min_hold_ms":0}`
	grant := d.component("Grant")
	if problem := d.fits(grant, fromJSON(t, fitting)); problem != "" {
		t.Fatal(problem)
	}
	for name, change := range map[string][2]string{
		"a member too many":         {`"key"`, `"another":1,"key"`},
		"a member of Holding":       {`"key"`, `"renewals":1,"key"`},
		"a member too few":          {`"note":"",`, ``},
		"an unknown word":           {`"none"`, `"both"`},
		"a token that is too large": {`"fencing_token":1`, `"fencing_token":9007199254740992`},
		"a text for a number":       {`"ttl_ms":1`, `"ttl_ms":"1"`},
		"a local time":              {`.728Z`, `.728+01:00`},
	} {
		wrong := strings.Replace(fitting, change[0], change[1], 1)
		if wrong == fitting || d.fits(grant, fromJSON(t, wrong)) == "" {
			t.Errorf("%s: it fits", name)
		}
	}
	held := `{"type":"https://github.com/locksidecar/locksidecar/blob/main/docs/problems.md#lost","title":"t","status":410,"code":"lost"}`
	for _, name := range []string{"LostProblem", "HeldProblem", "NotHeldProblem", "UnconfirmedProblem"} {
		if d.fits(d.component(name), fromJSON(t, held)) == "" {
			t.Errorf("%s lacks what it has to tell, and fits", name)
		}
	}
	for _, events := range []string{
		`[{"event":"ended","data":{}}]`, `[{"event":"lost","data":{"key":"k","fencing_token":1,"valid_for_ms":0,"valid_until_boottime_ms":1}}]`,
	} {
		if d.fits(d.component("Events"), fromJSON(t, events)) == "" {
			t.Errorf("%s: it fits", events)
		}
	}
}
