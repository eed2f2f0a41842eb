-- The roles of a person, as approvals require them: a JSON list of names.

ALTER TABLE tokens ADD COLUMN roles TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(roles));
